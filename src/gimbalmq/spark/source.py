"""The data source `rocketmq`: what Spark makes of `format("rocketmq")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.batch import BatchReader
from gimbalmq.spark.failures import plain_errors
from gimbalmq.spark.options import check_names, parse_read_options
from gimbalmq.spark.schema import columns_of_schema, ddl

__all__ = ["RocketMQDataSource"]


class RocketMQDataSource(DataSource):
    """Topics of Apache RocketMQ as tables.

    Found by Spark without registration when the package is installed:

        options = {"nameserver": "127.0.0.1:9876", "topic": "orders"}
        spark.read.format("rocketmq").options(**options).load()
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with plain_errors():
            check_names(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq"

    def schema(self) -> str:
        """All columns, or those of option `columns`."""
        with plain_errors():
            return ddl(parse_read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the columns in `schema`, which may come from the user."""
        with plain_errors():
            options = parse_read_options(self.options)
            columns = columns_of_schema(schema.fields)
            if "columns" in self.options:
                named = [column.source for column in options.columns]
                if named != [column.source for column in columns]:
                    raise ConfigurationError(
                        f"option 'columns' names {', '.join(named)}, but the schema "
                        f"{', '.join(column.name for column in columns)}: give one of them"
                    )
            return BatchReader(options, columns)
