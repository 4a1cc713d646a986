"""From JSON of uncertain shape to typed values and back; shared by all bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.lenient_json import object_key, read_json

__all__ = [
    "Document",
    "convert",
    "java_names",
    "queue_from",
    "queue_keyed",
    "queue_map",
    "queue_members",
    "read_document",
    "write_document",
]

Document = bytes | bytearray | memoryview

_Value = TypeVar("_Value")

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def java_names(**special: str) -> Callable[[str], str]:
    """A renaming from `snake_case` to `camelCase`, with exceptions."""

    def rename(name: str) -> str:
        first, *rest = name.split("_")
        return special.get(name) or first + "".join(part.capitalize() for part in rest)

    return rename


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(member) for name, member in value.items() if member is not None
        }
    if isinstance(value, list):
        return [_without_nulls(member) for member in value]
    return value


def read_document(data: Document, what: str) -> dict[Any, Any]:
    """A JSON object; null members count as absent, and no bytes as an empty object."""
    if not data:
        return {}
    document = read_json(data, what)
    if not isinstance(document, dict):
        raise ProtocolError(f"{what} is no JSON object but {type(document).__name__}")
    return {name: _without_nulls(member) for name, member in document.items() if member is not None}


def convert(value: Any, kind: type[_Value], what: str) -> _Value:
    """A typed value from JSON; numbers in quotes are taken as numbers."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(
            f"{what} does not have the shape that RocketMQ gives it: {error}"
        ) from error


def write_document(value: Any) -> bytes:
    """JSON as Java writes it: members sorted, absent instead of null.

    Sets are sorted too, so that the same value always gives the same bytes.
    """
    plain = msgspec.to_builtins(value, builtin_types=(msgspec.Raw,), order="sorted")
    return _encode(_without_nulls(plain))


def queue_members(queue: MessageQueue) -> dict[str, str | int]:
    """A queue as JSON members."""
    return {"brokerName": queue.broker, "queueId": queue.queue_id, "topic": queue.topic}


def queue_from(value: Any, what: str) -> MessageQueue:
    """A queue from JSON members."""
    key = object_key(value) if isinstance(value, dict) else value
    if not isinstance(key, MessageQueue):
        raise ProtocolError(f"{what} has {value!r} where a queue must stand")
    return key


def queue_keyed(entries: Mapping[MessageQueue, Any]) -> msgspec.Raw:
    """A map keyed by queues in the form that every release reads: the object itself as key."""
    return msgspec.Raw(
        b"{%b}"
        % b",".join(
            b"%b:%b" % (_encode(queue_members(queue)), write_document(value))
            for queue, value in entries.items()
        )
    )


def queue_map(value: Any, what: str) -> dict[MessageQueue, Any]:
    """A map keyed by queues, in any form that peers write: object keys, or objects in quotes."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} has {type(value).__name__} where a map of queues must stand")
    return {
        queue_from(read_json(key.encode(), what) if isinstance(key, str) else key, what): member
        for key, member in value.items()
    }
