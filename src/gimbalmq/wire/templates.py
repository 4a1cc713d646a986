"""Sends to one queue: their header is written once, with gaps.

Of a send only a few header fields differ from the one before, and of these some change only with
the millisecond. Filling the gaps costs a fraction of writing the whole header down, and gives the
same bytes.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import encode_command
from gimbalmq.wire.frame import FRAME_BYTES_MAX
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.properties import first_properties

__all__ = ["SendTemplate"]

_words: Final = struct.Struct(">ii")
_encode_json: Final = msgspec.json.Encoder().encode
#: Stands for a value that is filled in; no field of a request can have it.
_GAP: Final = "\x00gap\x00"
_GAP_BYTES: Final = _encode_json(_GAP)
_OPAQUE: Final = 2_000_000_000
#: The first properties in JSON: what is in front of a message's id, and behind it.
_BEFORE_ID, _AFTER_ID = _encode_json(first_properties(_GAP))[:-1].split(_GAP_BYTES[1:-1])

#: The time and system flag of a request, its header up to the message's id, and the size of all of
#: the header but the id, properties of the message's own, and the request's number.
_Start = tuple[int, int, bytes, int]


class SendTemplate:
    r"""Sends of single messages to one queue, from any thread.

    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> template = SendTemplate("shop", queue, "TBW102", 4)
    >>> parts = template.parts(9, b"paid", "7F00", "KEYS\x0142\x02", 1_700_000_000_000, 0)
    >>> parts[-1]
    b'paid'
    """

    __slots__ = (
        "_after_id",
        "_after_properties",
        "_end",
        "_start",
        "_until_flag",
        "_until_properties",
        "_until_time",
    )

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
        # System flag, time of birth and properties, in this order.
        command.fields |= dict.fromkeys(("f", "g", "i"), _GAP)
        command.opaque = _OPAQUE
        header = encode_command(command)[_words.size :]
        self._until_flag, self._until_time, self._until_properties, rest = header.split(_GAP_BYTES)
        after, _, self._end = rest.rpartition(b"%d" % _OPAQUE)
        self._after_properties = b'"' + after
        self._after_id = _AFTER_ID + self._after_properties
        #: The start that was written down last; replaced as one.
        self._start = self._start_at(0, 0)

    def parts(
        self,
        opaque: int,
        body: bytes,
        unique_id: str,
        more_properties: str,
        born_timestamp_ms: int,
        sys_flag: int,
    ) -> tuple[bytes, ...]:
        """The frame of one send in parts, as `send_request` would have it.

        Whoever sends several joins the parts of all of them in one step. The id is made of hex
        digits; its properties come first, then the others.

        Raises:
            ConfigurationError: the properties are not text, or the frame would be too long.
        """
        known_ms, known_flag, start, fixed_bytes = self._start
        if born_timestamp_ms != known_ms or sys_flag != known_flag:
            self._start = begun = self._start_at(born_timestamp_ms, sys_flag)
            _, _, start, fixed_bytes = begun
        number, name, after_id = b"%d" % opaque, unique_id.encode(), self._after_id
        header_bytes = fixed_bytes + len(name) + len(number)
        if more_properties:
            more = _inside_json(more_properties)
            header_bytes += len(more)
            after_id = _AFTER_ID + more + self._after_properties
        length = 4 + header_bytes + len(body)
        if length + 4 > FRAME_BYTES_MAX:
            raise ConfigurationError(
                f"frame of {length + 4} bytes, above the protocol's limit of {FRAME_BYTES_MAX}: "
                "send less at once"
            )
        words = _words.pack(length, header_bytes)
        return words, start, name, after_id, number, self._end, body

    def _start_at(self, born_timestamp_ms: int, sys_flag: int) -> _Start:
        start = b'%b"%d"%b"%d"%b%b' % (
            self._until_flag,
            sys_flag,
            self._until_time,
            born_timestamp_ms,
            self._until_properties,
            _BEFORE_ID,
        )
        fixed_bytes = len(start) + len(self._after_id) + len(self._end)
        return born_timestamp_ms, sys_flag, start, fixed_bytes


def _inside_json(text: str) -> bytes:
    try:
        return _encode_json(text)[1:-1]
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"the keys, tags or properties are not text (a lone surrogate): {error}"
        ) from error
