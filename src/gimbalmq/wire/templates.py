"""Requests that are sent again and again: their header is written once, with gaps.

Of a send or a pull only a few header fields differ from the one before. Filling these in costs
a third of writing the whole header down, and gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.frame import FRAME_BYTES_MAX
from gimbalmq.wire.headers import send_request

__all__ = ["CommandTemplate", "SendTemplate"]

_words: Final = struct.Struct(">ii")
_encode_json: Final = msgspec.json.Encoder().encode
#: Stands for a value that is filled in; no field of a request can have it.
_GAP: Final = "\x00gap\x00"
_GAP_BYTES: Final = _encode_json(_GAP)
_OPAQUE: Final = 2_000_000_000


class CommandTemplate:
    """The frame of a command, with gaps for some of its fields and for its number.

    >>> template = CommandTemplate(Command(34, {"name": "a", "offset": ""}), numbers=["offset"])
    >>> template.frame((7, 1)) == encode_command(Command(34, {"name": "a", "offset": "7"}, opaque=1))
    True
    """

    __slots__ = ("_header",)

    def __init__(
        self, command: Command, *, numbers: Collection[str] = (), texts: Collection[str] = ()
    ) -> None:
        gaps = {**dict.fromkeys(numbers, b'"%d"'), **dict.fromkeys(texts, b"%b")}
        fields = {name: _GAP if name in gaps else text for name, text in command.fields.items()}
        frame = encode_command(Command(command.code, fields, opaque=_OPAQUE))
        header = frame[_words.size :].replace(b"%", b"%%")
        for name in fields:
            if name in gaps:
                header = header.replace(_GAP_BYTES, gaps[name], 1)
        head, _, tail = header.rpartition(b"%d" % _OPAQUE)
        self._header = head + b"%d" + tail

    def frame(self, values: tuple[int | bytes, ...], body: bytes = b"") -> bytes:
        """The whole frame: the values of the gaps in the order of the fields, then the number.

        A text's value is its JSON.

        Raises:
            ConfigurationError: the frame would exceed the limit of every receiver.
        """
        header = self._header % values
        header_bytes = len(header)
        length = 4 + header_bytes + len(body)
        if length + 4 > FRAME_BYTES_MAX:
            raise ConfigurationError(
                f"frame of {length + 4} bytes, above the protocol's limit of {FRAME_BYTES_MAX}: "
                "send less at once"
            )
        return b"".join((_words.pack(length, header_bytes), header, body))


class SendTemplate:
    r"""Sends of single messages to one queue.

    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> template = SendTemplate("shop", queue, "TBW102", 4)
    >>> frame = template.frame(9, b"paid", "KEYS\x0142\x02", 1_700_000_000_000, 0)
    >>> frame.endswith(b"paid")
    True
    """

    __slots__ = ("_fill",)

    def __init__(
        self, group: str, queue: MessageQueue, default_topic: str, default_topic_queues: int
    ) -> None:
        command = send_request(
            group=group,
            queue=queue,
            body=b"",
            properties="",
            born_timestamp_ms=0,
            default_topic=default_topic,
            default_topic_queues=default_topic_queues,
        )
        self._fill = CommandTemplate(command, numbers=("f", "g"), texts=("i",)).frame

    def frame(
        self, opaque: int, body: bytes, properties: str, born_timestamp_ms: int, sys_flag: int
    ) -> bytes:
        """The frame of one send, as `send_request` would have it.

        Raises:
            ConfigurationError: the properties are not text, or the frame would be too long.
        """
        try:
            text = _encode_json(properties)
        except UnicodeEncodeError as error:
            raise ConfigurationError(
                f"the keys, tags or properties are not text (a lone surrogate): {error}"
            ) from error
        return self._fill((sys_flag, born_timestamp_ms, text, opaque), body)
