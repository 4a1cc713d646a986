"""Which columns of a frame become which part of a message, checked by name and type.

Columns that the source gives and a sender cannot set (`queue_offset` and the like) are left out
of messages, so that a frame that was read can be written. Any other column is refused: it would
be lost without a word. This file knows names and types, not rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.schema import COLUMNS

__all__ = ["WRITTEN", "RowLayout", "layout_of"]

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

#: Every column that goes into messages, with the types it may have as Spark writes them.
WRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "keys": ("string", "array<string>"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "delay_level": _INTEGERS,
    "deliver_at": ("timestamp",),
    "sharding_key": ("string",),
}
_IGNORED: Final = frozenset(COLUMNS) - frozenset(WRITTEN)
_ID_TYPES: Final = ("string", *_INTEGERS)


class _Field(Protocol):
    name: str
    dataType: Any  # noqa: N815 - PySpark's name


class RowLayout(msgspec.Struct, frozen=True):
    """Where the parts of a message stand in a frame; picklable."""

    #: Position of a column by its name in `WRITTEN`.
    places: dict[str, int]
    #: Position of the column with the row's own id; None: the id is a hash of the row.
    id_place: int | None
    #: Lower-case names of all columns, in the frame's order.
    names: tuple[str, ...]


def layout_of(
    fields: Sequence[_Field], *, id_column: str | None = None, topic: str | None = None
) -> RowLayout:
    """The layout of a frame with these fields.

    Raises:
        ConfigurationError: a column is missing, unknown, twice there or of another type.
    """
    names = tuple(field.name.lower() for field in fields)
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"the frame has column '{name}' more than once: drop or rename one"
            )
    id_place = _id_place(fields, names, id_column)
    places = {}
    for place, field in enumerate(fields):
        if names[place] in WRITTEN:
            _check_type(field, WRITTEN[names[place]])
            places[names[place]] = place
        elif names[place] not in _IGNORED and place != id_place:
            raise _unknown(field.name)
    if "body" not in places:
        raise ConfigurationError(
            "the frame has no column 'body': name the column with the message's content so, for "
            "example df.select(to_json(struct('*')).alias('body'))"
        )
    if topic is None and "topic" not in places:
        raise ConfigurationError(
            "nothing says where to write to: give option 'topic', or add a column 'topic'"
        )
    return RowLayout(places, id_place, names)


def _id_place(
    fields: Sequence[_Field], names: tuple[str, ...], id_column: str | None
) -> int | None:
    if id_column is None:
        return None
    if id_column.lower() not in names:
        raise ConfigurationError(
            f"option 'idColumn' names '{id_column}', which the frame does not have: its columns "
            f"are {', '.join(field.name for field in fields)}"
        )
    place = names.index(id_column.lower())
    given = fields[place].dataType.simpleString()
    if given not in _ID_TYPES:
        raise ConfigurationError(
            f"column '{id_column}' of option 'idColumn' has type {given}: an id is of type "
            f"{', '.join(_ID_TYPES)}; cast it"
        )
    return place


def _check_type(field: _Field, types: tuple[str, ...]) -> None:
    given = field.dataType.simpleString()
    if given not in types:
        raise ConfigurationError(
            f"column '{field.name}' has type {given}, but a message needs "
            f"{' or '.join(types)}: cast it before writing"
        )


def _unknown(name: str) -> ConfigurationError:
    close = difflib.get_close_matches(name.lower(), WRITTEN, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return ConfigurationError(
        f"column '{name}' is no part of a message: {hint}Written are {', '.join(WRITTEN)}; "
        "drop it, put it into 'body' or 'properties', or name it with option 'idColumn'"
    )
