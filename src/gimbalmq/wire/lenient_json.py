"""Reads the JSON that Java's fastjson writes, which is not always JSON.

Maps with integer keys come with bare keys (`{0:"a"}`), maps keyed by objects come with the object
as key (`{{"brokerName":...}:9}`), and an object that occurs twice may be replaced by a reference
(`{"$ref":"$.a.b[0]"}`). Standard JSON takes the fast way; the tolerant reader is for the rest.
Depth, size and the number of references are bounded.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue

__all__ = ["DEPTH_MAX", "DOCUMENT_BYTES_MAX", "object_key", "read_json"]

DEPTH_MAX: Final = 64
#: No document is larger than a frame.
DOCUMENT_BYTES_MAX: Final = 16 * 1024 * 1024

_REFERENCES_MAX: Final = 1000
_REFERENCE_PASSES: Final = 4

_decode: Final = msgspec.json.Decoder().decode
_space: Final = re.compile(r"[ \t\r\n]*").match
_number: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?").match
_path_step: Final = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(\d+)\]|\[(['\"])(.*?)\3\]")
#: Not strict: fastjson does not escape every control character.
_read_string: Final = json.JSONDecoder(strict=False).raw_decode
_WORDS: Final = {"true": True, "false": False, "null": None}


def read_json(data: bytes | bytearray | memoryview, what: str = "body") -> Any:
    """Read a document that Java wrote.

    Bare integer keys become `int`. Object keys become `MessageQueue` when they name one, else a
    tuple of their items. References are replaced by what they refer to; one that leads nowhere
    stays as it is.

    Raises:
        ProtocolError: the bytes are no document, or too deep or too large; `what` is named.

    >>> read_json(b'{"brokerAddrs":{0:"h:1",1:"h:2"}}')
    {'brokerAddrs': {0: 'h:1', 1: 'h:2'}}
    """
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ProtocolError(f"{what} has {len(data)} bytes, more than {DOCUMENT_BYTES_MAX}")
    try:
        document = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _Reader(data, what).document()
    return _resolve(document) if b'"$ref"' in bytes(data) else document


def object_key(members: dict[Any, Any]) -> Any:
    """What stands for an object that is a map's key: a queue, or a tuple of its items.

    >>> object_key({"brokerName": "b", "queueId": 1, "topic": "T"})
    MessageQueue(topic='T', broker='b', queue_id=1)
    """
    topic, broker = members.get("topic"), members.get("brokerName")
    if isinstance(topic, str) and isinstance(broker, str):
        try:
            return MessageQueue(topic, broker, int(members.get("queueId", 0)))
        except (TypeError, ValueError):
            pass
    return _frozen(members)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(_frozen(member) for member in value)
    return value


class _Reader:
    """Recursive descent over the text, one method per kind of value."""

    __slots__ = ("_text", "_what")

    def __init__(self, data: bytes | bytearray | memoryview, what: str) -> None:
        self._what = what
        try:
            self._text = str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{what} is no UTF-8 text: {error}") from error

    def document(self) -> Any:
        value, position = self._value(self._skip(0), 0)
        position = self._skip(position)
        if position != len(self._text):
            raise self._fault(position, "more text after the end")
        return value

    def _skip(self, position: int) -> int:
        match = _space(self._text, position)
        return match.end() if match else position

    def _value(self, position: int, depth: int) -> tuple[Any, int]:
        mark = self._text[position : position + 1]
        if mark == "{":
            return self._object(position + 1, depth + 1)
        if mark == "[":
            return self._list(position + 1, depth + 1)
        if mark == '"':
            return self._string(position)
        match = _number(self._text, position)
        if match:
            return self._numeral(match)
        for word, value in _WORDS.items():
            if self._text.startswith(word, position):
                return value, position + len(word)
        raise self._fault(position, "a value is missing")

    def _numeral(self, match: re.Match[str]) -> tuple[int | float, int]:
        text = match.group()
        try:
            number = float(text) if match.group(1) or match.group(2) else int(text)
        except ValueError as error:  # Python refuses integers of thousands of digits
            raise self._fault(match.start(), "a number is too long") from error
        return number, match.end()

    def _string(self, position: int) -> tuple[str, int]:
        try:
            text, position = _read_string(self._text, position)
        except json.JSONDecodeError as error:
            raise self._fault(error.pos, error.msg) from error
        return text, position

    def _object(self, position: int, depth: int) -> tuple[dict[Any, Any], int]:
        self._check_depth(position, depth)
        members: dict[Any, Any] = {}
        position = self._skip(position)
        if self._text.startswith("}", position):
            return members, position + 1
        while True:
            key, position = self._value(position, depth)
            if isinstance(key, dict):
                key = object_key(key)
            elif not isinstance(key, str | int) or isinstance(key, bool):
                raise self._fault(position, "a key is neither text, integer nor object")
            position = self._expect(":", position)
            members[key], position = self._value(position, depth)
            position = self._skip(position)
            if self._text.startswith("}", position):
                return members, position + 1
            position = self._expect(",", position)

    def _list(self, position: int, depth: int) -> tuple[list[Any], int]:
        self._check_depth(position, depth)
        items: list[Any] = []
        position = self._skip(position)
        if self._text.startswith("]", position):
            return items, position + 1
        while True:
            item, position = self._value(position, depth)
            items.append(item)
            position = self._skip(position)
            if self._text.startswith("]", position):
                return items, position + 1
            position = self._expect(",", position)

    def _expect(self, mark: str, position: int) -> int:
        position = self._skip(position)
        if not self._text.startswith(mark, position):
            raise self._fault(position, f"'{mark}' is missing")
        return self._skip(position + 1)

    def _check_depth(self, position: int, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self._fault(position, f"nested deeper than {DEPTH_MAX}")

    def _fault(self, position: int, reason: str) -> ProtocolError:
        near = self._text[max(0, position - 20) : position + 20]
        return ProtocolError(
            f"{self._what} is no JSON as RocketMQ writes it: {reason} at character {position}, "
            f"near {near!r}"
        )


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str)


def _has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        return _is_reference(value) or any(map(_has_reference, value.values()))
    return isinstance(value, list) and any(map(_has_reference, value))


def _resolve(document: Any) -> Any:
    # A reference is only replaced by a part without references, so no cycle can arise; several
    # passes serve objects that contain other repeated objects.
    for _ in range(_REFERENCE_PASSES):
        places = _references(document, [])
        if len(places) > _REFERENCES_MAX:
            raise ProtocolError(f"a document has {len(places)} references: refused")
        targets = [(owner, key, _target(document, owner[key]["$ref"])) for owner, key in places]
        found = [(owner, key, target) for owner, key, target in targets if target is not None]
        if not found:
            break
        for owner, key, target in found:
            owner[key] = target
    return document


def _references(value: Any, places: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, member in items:
        if _is_reference(member):
            places.append((value, key))
        else:
            _references(member, places)
    return places


def _target(document: Any, path: str) -> Any:
    """The part that a reference names; None when there is none or it holds references itself."""
    if not path.startswith("$"):
        return None
    value, position = document, 1
    while position < len(path):
        match = _path_step.match(path, position)
        if match is None:
            return None
        name, index, _, quoted = match.groups()
        try:
            if index is not None:
                value = value[int(index)]
            else:
                text = quoted if name is None else re.sub(r"\\(.)", r"\1", name)
                value = value[int(text)] if text not in value else value[text]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
        position = match.end()
    return None if _has_reference(value) else value
