"""The remoting command: what one frame says.

Two header forms exist, JSON and binary; a frame's own type byte tells which, and an answer need
not use the form of its question. This file knows the header, not what the fields of a code mean.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.codes import CLIENT_VERSION, LANGUAGE_CODES, LANGUAGE_NAMES
from gimbalmq.wire.frame import FRAME_BYTES_MAX

__all__ = [
    "FLAG_ONEWAY",
    "FLAG_RESPONSE",
    "Command",
    "ReadyCommand",
    "decode_command",
    "encode_command",
    "response_to",
]

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

_TYPE_JSON: Final = 0
_TYPE_BINARY: Final = 1

_words: Final = struct.Struct(">ii")
_word: Final = struct.Struct(">i")
_word_at: Final = _word.unpack_from
#: code, language, version, opaque, flag
_binary_start: Final = struct.Struct(">hbhii")
_key_length: Final = struct.Struct(">h")


class Command(msgspec.Struct):
    """One request or response.

    `fields` are the header's ext fields. The body of a decoded command is a view into the frame;
    `bytes(command.body)` makes it independent.

    >>> command = Command(105, {"topic": "orders"}, opaque=7)
    >>> command.is_response, command.is_oneway
    (False, False)
    """

    code: int
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | memoryview = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = "PYTHON"
    version: int = CLIENT_VERSION

    @property
    def is_response(self) -> bool:
        """Whether this answers a request (of the same opaque number) by the receiver."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether this request must not be answered."""
        return self.flag & FLAG_ONEWAY != 0


class ReadyCommand(Command):
    """A command that may know a quicker way to the same frame than from its fields."""

    def frame(self) -> bytes:
        """The whole frame, with the JSON header."""
        return _encode(self, binary=False)


class _JsonHeader(msgspec.Struct):
    """The JSON header as well-behaved peers write it; defaults are what Java assumes."""

    code: int
    extFields: dict[str, str] | None = None  # noqa: N815 - name on the wire
    flag: int = 0
    language: str = "JAVA"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


_decode_header: Final = msgspec.json.Decoder(_JsonHeader).decode
_decode_any: Final = msgspec.json.Decoder().decode
_encode_json: Final = msgspec.json.Encoder().encode


def response_to(
    request: Command,
    code: int = 0,
    remark: str | None = None,
    fields: dict[str, str] | None = None,
    body: bytes | memoryview = b"",
) -> Command:
    """The answer to a request: same opaque number, response flag set.

    >>> response_to(Command(34, opaque=5), 3, "unknown").opaque
    5
    """
    return Command(
        code, {} if fields is None else fields, body, request.opaque, FLAG_RESPONSE, remark
    )


def encode_command(command: Command, *, binary: bool = False) -> bytes:
    """The whole frame, length word included; JSON header unless `binary`.

    Members are written in Java's order, so a frame equals Java's byte for byte when the fields
    are in the same order.

    Raises:
        ConfigurationError: the frame would exceed the limit of every receiver, or the binary
            form cannot carry the code (it has 16 bits; the pop family needs JSON).
    """
    if not binary and isinstance(command, ReadyCommand):
        return command.frame()
    return _encode(command, binary=binary)


def _encode(command: Command, *, binary: bool) -> bytes:
    try:
        header = _binary_header(command) if binary else _json_header(command)
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"a header field of code {command.code} is not text (a lone surrogate): {error}"
        ) from error
    header_bytes = len(header)
    length = 4 + header_bytes + len(command.body)
    if length + 4 > FRAME_BYTES_MAX:
        raise ConfigurationError(
            f"frame of code {command.code} has {length + 4} bytes, above the protocol's limit of "
            f"{FRAME_BYTES_MAX}: send less at once"
        )
    word = _TYPE_BINARY << 24 | header_bytes if binary else header_bytes
    return b"".join((_words.pack(length, word), header, command.body))


def _json_header(command: Command) -> bytes:
    remark = command.remark
    return b'{"code":%d,"extFields":%b,"flag":%d,"language":%b,"opaque":%d,%b%b%d}' % (
        command.code,
        _encode_json(command.fields),
        command.flag,
        _encode_json(command.language),
        command.opaque,
        b"" if remark is None else b'"remark":%b,' % _encode_json(remark),
        b'"serializeTypeCurrentRPC":"JSON","version":',
        command.version,
    )


def _binary_header(command: Command) -> bytes:
    try:
        start = _binary_start.pack(
            command.code,
            LANGUAGE_CODES.get(command.language, LANGUAGE_CODES["OTHER"]),
            command.version,
            command.opaque,
            command.flag,
        )
    except struct.error as error:
        raise ConfigurationError(
            f"code {command.code}, version {command.version} or opaque {command.opaque} does not "
            "fit the binary header: use the JSON form"
        ) from error
    entries = bytearray()
    for name, value in command.fields.items():
        key, text = name.encode(), value.encode()
        entries += _key_length.pack(len(key)) + key + _word.pack(len(text)) + text
    remark = (command.remark or "").encode()
    return b"".join((start, _word.pack(len(remark)), remark, _word.pack(len(entries)), entries))


def decode_command(frame: bytes | bytearray | memoryview) -> Command:
    """Read one frame (without its length word) by its own type byte.

    Tolerates what Java tolerates: numbers and booleans as field values, nulls, unknown members,
    numbers in quotes; in the binary form a repeated key (the last one counts) and empty values
    (which Java reads as absent).

    Raises:
        ProtocolError: the bytes are no remoting header.
    """
    view = frame if isinstance(frame, memoryview) else memoryview(frame)
    end = len(view)
    if end < 4:
        raise ProtocolError(f"frame of {end} bytes has no header word; the data is corrupt")
    word = _word_at(view)[0]
    header_until = 4 + (word & 0xFFFFFF)
    kind = word >> 24
    if header_until > end:
        raise ProtocolError(
            f"header of {header_until - 4} bytes in a frame of {end}: "
            "the data is corrupt, or the peer is no RocketMQ server"
        )
    header = view[4:header_until]
    body: bytes | memoryview = view[header_until:] if header_until < end else b""
    if kind == _TYPE_JSON:
        return _read_json(header, body)
    if kind == _TYPE_BINARY:
        return _read_binary(header, body)
    raise ProtocolError(
        f"header type {kind} is neither JSON (0) nor binary (1): "
        "the data is corrupt, or the peer is no RocketMQ server"
    )


def _read_json(header: memoryview, body: bytes | memoryview) -> Command:
    if not header:
        raise ProtocolError(
            "frame with an empty header: the peer speaks HTTP/2 (a gRPC proxy's port), or the data "
            "is corrupt; check the address"
        )
    try:
        read = _decode_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_loose_json(header, body)
    return Command(
        read.code,
        read.extFields or {},
        body,
        read.opaque,
        read.flag,
        read.remark,
        read.language,
        read.version,
    )


def _read_loose_json(header: memoryview, body: bytes | memoryview) -> Command:
    try:
        read = _decode_any(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"header is not JSON ({error}): {_excerpt(header)}") from error
    if not isinstance(read, dict):
        raise ProtocolError(f"header is no JSON object: {_excerpt(header)}")
    fields = read.get("extFields")
    if not isinstance(fields, dict | None):
        raise ProtocolError(f"extFields is no JSON object: {_excerpt(header)}")
    language = read.get("language", "JAVA")
    remark = read.get("remark")
    return Command(
        _number(read, "code", header),
        {name: _text(value) for name, value in (fields or {}).items() if value is not None},
        body,
        _number(read, "opaque", header),
        _number(read, "flag", header),
        None if remark is None else _text(remark),
        LANGUAGE_NAMES.get(language, "OTHER") if isinstance(language, int) else _text(language),
        _number(read, "version", header),
    )


def _number(read: dict[str, Any], name: str, header: memoryview) -> int:
    value = read.get(name)
    if value is None:
        return 0
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"'{name}' is no number in header {_excerpt(header)}") from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode_json(value).decode()


def _excerpt(data: memoryview) -> str:
    return repr(bytes(data[:80])) + ("..." if len(data) > 80 else "")


def _read_binary(header: memoryview, body: bytes | memoryview) -> Command:
    data = bytes(header)
    try:
        code, language, version, opaque, flag = _binary_start.unpack_from(data)
        remark, entries_at = _sized(data, _binary_start.size, _word)
        entries, _ = _sized(data, entries_at, _word)
        fields: dict[str, str] = {}
        position = 0
        while position < len(entries):
            key, position = _sized(entries, position, _key_length)
            value, position = _sized(entries, position, _word)
            if key and value:
                fields[key.decode()] = value.decode()
        text = remark.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(
            f"binary header is corrupt ({error}): {_excerpt(header)}; "
            "the peer is no RocketMQ server, or bytes were lost"
        ) from error
    return Command(
        code,
        fields,
        body,
        opaque,
        flag,
        text or None,
        LANGUAGE_NAMES.get(language, "OTHER"),
        version,
    )


def _sized(data: bytes, position: int, length: struct.Struct) -> tuple[bytes, int]:
    """The sized byte string at `position`, and where it ends."""
    start = position + length.size
    until = start + length.unpack_from(data, position)[0]
    if not start <= until <= len(data):
        raise struct.error(f"string at byte {position} ends at {until} of {len(data)}")
    return data[start:until], until
