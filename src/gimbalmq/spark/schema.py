"""The columns of a read: names, types, and which of them a read is to decode.

Spark cannot tell a Python source which columns a query uses, so the reader decodes what the
schema names: `.schema("body binary, queue_offset long")` and the option `columns` both narrow it.
Column names are compared as Spark compares them, whatever their case. This file knows types, not
how to get a column out of a record.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from gimbalmq.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "Column", "arrow_schema", "columns_of_schema", "ddl", "parse_columns"]

#: Every column and its type as Spark writes it (`DataType.simpleString`), in the default order.
COLUMNS: Final = {
    "topic": "string",
    "broker": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "message_id": "string",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "reconsume_times": "int",
    "sys_flag": "int",
}
#: Not every message has them.
_NULLABLE: Final = frozenset({"keys", "tags"})


class _Field(Protocol):
    name: str
    dataType: Any  # noqa: N815 - PySpark's name
    nullable: bool


class Column(msgspec.Struct, frozen=True):
    """A column to give to Spark: `name` as the user wrote it, `source` as `COLUMNS` has it."""

    name: str
    source: str
    nullable: bool = True
    #: Only for `properties`: whether Spark's type allows null values in the map.
    null_values: bool = True


def ddl(columns: Iterable[Column]) -> str:
    """The columns as Spark's schema text.

    >>> ddl([Column("body", "body"), Column("queue_id", "queue_id")])
    '`body` binary, `queue_id` int'
    """
    return ", ".join(f"`{column.name}` {COLUMNS[column.source]}" for column in columns)


def parse_columns(text: str | None) -> tuple[Column, ...]:
    """The columns that the option `columns` names, separated by commas; all without it.

    >>> [column.source for column in parse_columns("body, Queue_ID")]
    ['body', 'queue_id']
    """
    if text is None:
        return tuple(Column(name, name) for name in COLUMNS)
    names = [part.strip() for part in text.split(",")]
    columns = [Column(source, source) for source in (_source(n, "option 'columns'") for n in names)]
    _check_unique(columns, "option 'columns'")
    return tuple(columns)


def columns_of_schema(fields: Sequence[_Field]) -> tuple[Column, ...]:
    """The columns that the fields of a Spark schema ask for, checked by name and type."""
    columns = []
    for field in fields:
        source = _source(field.name, "the schema")
        expected, given = COLUMNS[source], field.dataType.simpleString()
        if given != expected:
            raise ConfigurationError(
                f"column '{field.name}' of the schema has type {given}, but the source has "
                f"{expected}: read it as {expected} and cast it afterwards"
            )
        if source in _NULLABLE and not field.nullable:
            raise ConfigurationError(
                f"column '{field.name}' of the schema is NOT NULL, but not every message has "
                f"{source}: leave NOT NULL out and filter afterwards"
            )
        null_values = getattr(field.dataType, "valueContainsNull", True)
        columns.append(Column(field.name, source, field.nullable, null_values))
    _check_unique(columns, "the schema")
    return tuple(columns)


def _source(name: str, where: str) -> str:
    source = name.lower()
    if source in COLUMNS:
        return source
    close = difflib.get_close_matches(source, COLUMNS, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise ConfigurationError(
        f"{where} names the unknown column '{name}': {hint}There are {', '.join(COLUMNS)}"
    )


def _check_unique(columns: Sequence[Column], where: str) -> None:
    sources = [column.source for column in columns]
    for source in sources:
        if sources.count(source) > 1:
            raise ConfigurationError(f"{where} names column '{source}' more than once")


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema that Spark compares the first batch with: equal in every detail."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        # Spark wants UTC, whatever the time zone of the session.
        "timestamp": pa.timestamp("us", tz="UTC"),
    }

    def field(column: Column) -> pa.Field[Any]:
        kind = COLUMNS[column.source]
        if kind in types:
            return pa.field(column.name, types[kind], nullable=column.nullable)
        value = pa.field("value", pa.string(), nullable=column.null_values)
        # The stubs know the value as a type only; a field also says whether it may be null.
        mapped = pa.map_(pa.string(), value)  # type: ignore[call-overload]
        return pa.field(column.name, mapped, nullable=column.nullable)

    return pa.schema([field(column) for column in columns])
