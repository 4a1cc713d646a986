"""The data source `rocketmq`: what Spark makes of `format("rocketmq")`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from gimbalmq.errors import ConfigurationError, GimbalError
from gimbalmq.spark.batch import BatchReader
from gimbalmq.spark.failures import plain_errors
from gimbalmq.spark.option_names import check_names, has_stream_options
from gimbalmq.spark.options import ReadOptions, parse_read_options
from gimbalmq.spark.schema import Column, columns_of_schema, ddl
from gimbalmq.spark.sink import BatchWriter, StreamWriter
from gimbalmq.spark.stream_options import parse_stream_options
from gimbalmq.spark.write_columns import RowLayout, layout_of
from gimbalmq.spark.write_options import Selector, WriteOptions, parse_write_options

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
            # Spark does not say whether a batch read or a stream follows.
            if has_stream_options(self.options):
                return ddl(parse_stream_options(self.options).read.columns)
            return ddl(parse_read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the columns in `schema`, which may come from the user."""
        with plain_errors():
            options = parse_read_options(self.options)
            return BatchReader(options, self._columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A stream reader of the columns in `schema`."""
        from gimbalmq.spark.stream import RefusingReader, StreamReader

        try:
            options = parse_stream_options(self.options)
            return StreamReader(options, self._columns(schema, options.read))
        except GimbalError as error:
            return RefusingReader(error)

    def _columns(self, schema: StructType, options: ReadOptions) -> tuple[Column, ...]:
        columns = columns_of_schema(schema.fields)
        if "columns" in self.options:
            named = [column.source for column in options.columns]
            if named != [column.source for column in columns]:
                raise ConfigurationError(
                    f"option 'columns' names {', '.join(named)}, but the schema "
                    f"{', '.join(column.name for column in columns)}: give one of them"
                )
        return columns

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - PySpark's signature
        """A batch writer of a frame with this schema."""
        with plain_errors():
            if overwrite:
                raise ConfigurationError(
                    "a topic cannot be overwritten, only added to: write with mode('append')"
                )
            return BatchWriter(*self._writing(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802, FBT001 - PySpark's signature
        """A stream writer of frames with this schema."""
        with plain_errors():
            if overwrite:
                raise ConfigurationError(
                    "a topic cannot be rewritten with every batch: use outputMode('append')"
                )
            return StreamWriter(*self._writing(schema))

    def _writing(self, schema: StructType) -> tuple[WriteOptions, RowLayout]:
        options = parse_write_options(self.options)
        layout = layout_of(schema.fields, id_column=options.id_column, topic=options.topic)
        if options.selector is Selector.KEY and not {"sharding_key", "keys"} & layout.places.keys():
            raise ConfigurationError(
                "option 'selector' is 'key', but the frame has neither column 'sharding_key' nor "
                "'keys': add one, or choose another selector"
            )
        return options, layout
