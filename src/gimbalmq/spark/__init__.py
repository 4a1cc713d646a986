"""RocketMQ topics in Spark: the data source `rocketmq`, and a session to try it in.

    from gimbalmq.spark import local_session

    spark = local_session()
    orders = spark.read.format("rocketmq").option("topic", "orders").load()

The source needs no registration. Importing this package loads neither PySpark nor pyarrow.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gimbalmq.spark.ids import deduplicated
    from gimbalmq.spark.session import local_session
    from gimbalmq.spark.source import RocketMQDataSource

__all__ = ["RocketMQDataSource", "deduplicated", "local_session"]

if importlib.util.find_spec("pyspark") is None:
    raise ImportError(
        'gimbalmq.spark needs PySpark, which is not installed: pip install "gimbalmq[spark]"',
        name="pyspark",
    )


def __getattr__(name: str) -> Any:
    if name == "RocketMQDataSource":
        from gimbalmq.spark.source import RocketMQDataSource

        return RocketMQDataSource
    if name == "deduplicated":
        from gimbalmq.spark.ids import deduplicated

        return deduplicated
    if name == "local_session":
        from gimbalmq.spark.session import local_session

        return local_session
    raise AttributeError(f"module 'gimbalmq.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
