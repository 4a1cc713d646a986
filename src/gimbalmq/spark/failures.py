"""How an error of ours reaches the user through Spark: as a sentence, not as a traceback.

Spark puts the text of a worker's exception behind its own first line. By default that text starts
with a Python traceback, and the sentence that says what to do stands at its very end.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from gimbalmq.errors import GimbalError

__all__ = ["WORKER_MODULE", "plain_errors"]

#: PySpark's switch, read by a worker when it reports an exception. A worker that has failed ends,
#: so setting it for the failure at hand touches nothing else.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
#: Part of every Python worker, and of nothing else.
WORKER_MODULE: Final = "pyspark.worker_util"


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Have Spark show errors of the package raised inside without their traceback."""
    try:
        yield
    except GimbalError:
        if WORKER_MODULE in sys.modules:
            os.environ[_HIDE_TRACEBACK] = "1"
        raise
