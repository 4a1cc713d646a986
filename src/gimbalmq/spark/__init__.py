"""RocketMQ topics in Spark: the data source `rocketmq`, and a session to try it in.

    from gimbalmq.spark import local_session

    spark = local_session()
    orders = spark.read.format("rocketmq").option("topic", "orders").load()

The source needs no registration. Importing this package loads neither PySpark nor pyarrow.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gimbalmq.spark.failures import clear_errors
    from gimbalmq.spark.ids import deduplicated
    from gimbalmq.spark.progress import QueueProgress, progress_line, queue_progress
    from gimbalmq.spark.session import local_session
    from gimbalmq.spark.source import RocketMQDataSource

__all__ = [
    "QueueProgress",
    "RocketMQDataSource",
    "clear_errors",
    "deduplicated",
    "local_session",
    "progress_line",
    "queue_progress",
]

#: Where each name is; loaded when it is asked for.
_PLACES: Final = {
    "QueueProgress": "progress",
    "RocketMQDataSource": "source",
    "clear_errors": "failures",
    "deduplicated": "ids",
    "local_session": "session",
    "progress_line": "progress",
    "queue_progress": "progress",
}

if importlib.util.find_spec("pyspark") is None:
    raise ImportError(
        'gimbalmq.spark needs PySpark, which is not installed: pip install "gimbalmq[spark]"',
        name="pyspark",
    )


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"gimbalmq.spark.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'gimbalmq.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
