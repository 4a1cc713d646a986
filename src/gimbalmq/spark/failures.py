"""How an error of ours reaches the user through Spark: as a sentence, not as a traceback.

Spark puts the text of a worker's exception behind words of its own. By default that text starts
with a Python traceback, and the sentence that says what to do stands at its very end: workers
switch the traceback off (`plain_errors`). What remains before the sentence is fixed in Spark. For
an error while planning it stands in the same line; for one in a task PySpark begins with a line
of its own, which `clear_errors` takes away on the side of the caller.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Final

from gimbalmq import errors
from gimbalmq.errors import BrokerError, GimbalError

__all__ = ["WORKER_MODULE", "clear_errors", "plain_errors", "sentence_of"]

#: PySpark's switch, read by a worker when it reports an exception. A worker that has failed ends,
#: so setting it for the failure at hand touches nothing else.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
#: Part of every Python worker, and of nothing else.
WORKER_MODULE: Final = "pyspark.worker_util"
#: How Python writes an exception of ours, wherever in a line Spark puts it.
_OURS: Final = re.compile(r"\bgimbalmq\.errors\.(\w+): (.+)")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Have Spark show errors of the package raised inside without their traceback."""
    try:
        yield
    except GimbalError:
        if WORKER_MODULE in sys.modules:
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


@contextlib.contextmanager
def clear_errors() -> Iterator[None]:
    """Raise what the package said inside of Spark as the package's own error.

    An exception that carries one becomes it again: `ProtocolError`, `OffsetError` and
    so on, with the sentence alone as its text, and Spark's exception as its cause. All others
    pass as they are. For batch reads and writes, and for `awaitTermination()` of a stream:

        with clear_errors():
            orders.write.parquet("archive")
    """
    try:
        yield
    except GimbalError:
        raise
    except Exception as error:  # of PySpark, or of py4j, as `toLocalIterator` raises it
        ours = _rebuilt(str(error))
        if ours is None:
            raise
        raise ours from error


def sentence_of(error: Exception) -> str:
    """The sentence in an error of Spark's: ours if there is one, else its first line."""
    text = str(error)
    ours = _rebuilt(text)
    if ours is not None:
        return str(ours)
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "Spark failed without a word")


def _rebuilt(text: str) -> GimbalError | None:
    found = _OURS.search(text)
    kind = None if found is None else getattr(errors, found[1], None)
    if found is None or not isinstance(kind, type) or not issubclass(kind, GimbalError):
        return None
    sentence = found[2].strip()
    # Spark passes on the text alone: the code is in it, where it matters.
    return kind(sentence, code=0) if issubclass(kind, BrokerError) else kind(sentence)
