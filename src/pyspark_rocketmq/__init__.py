"""Where Spark finds the data source `rocketmq` by itself.

Spark imports every top-level module whose name starts with `pyspark_` and registers its
`DefaultSource`. One module that fails to import hides the sources of all others, so a failure
here leaves the name out instead: Spark then says that it does not know the format.
"""

from __future__ import annotations

__all__ = ["DefaultSource"]

try:
    from gimbalmq.spark.source import RocketMQDataSource as DefaultSource
except ImportError as error:
    import logging

    __all__.clear()
    logging.getLogger("gimbalmq.spark").warning("format 'rocketmq' is not available: %s", error)
