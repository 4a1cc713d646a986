"""Sends to one queue: their header is written once, with gaps.

Of a send only a few header fields differ from the one before, and of these some are the same for
all that leave together. Filling the gaps costs a fraction of writing the whole header down, and
gives the same bytes.
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

__all__ = ["SendTemplate", "born_part"]

_words: Final = struct.Struct(">ii")
_encode_json: Final = msgspec.json.Encoder().encode
#: Stands for a value that is filled in; no field of a request can have it.
_GAP: Final = "\x00gap\x00"
_GAP_BYTES: Final = _encode_json(_GAP)
_OPAQUE: Final = 2_000_000_000
#: The first properties in JSON: what is in front of a message's id, and behind it.
_BEFORE_ID, _AFTER_ID = _encode_json(first_properties(_GAP))[:-1].split(_GAP_BYTES[1:-1])


def _pieces(
    group: str, queue: MessageQueue, default_topic: str, default_topic_queues: int
) -> list[bytes]:
    """The header of a send, cut at its system flag, its time of birth and its properties."""
    command = send_request(
        group=group,
        queue=queue,
        body=b"",
        properties="",
        born_timestamp_ms=0,
        default_topic=default_topic,
        default_topic_queues=default_topic_queues,
    )
    # Under these names, and in this order.
    command.fields |= dict.fromkeys(("f", "g", "i"), _GAP)
    command.opaque = _OPAQUE
    return encode_command(command)[_words.size :].split(_GAP_BYTES)


#: What is between the three is the same for every queue.
_, _UNTIL_TIME, _UNTIL_PROPERTIES, _ = _pieces("", MessageQueue("", "", 0), "", 0)


def born_part(born_timestamp_ms: int, sys_flag: int) -> bytes:
    """The part of a header that sends of one moment have in common, whatever their queue."""
    return b'"%d"%b"%d"%b%b' % (
        sys_flag,
        _UNTIL_TIME,
        born_timestamp_ms,
        _UNTIL_PROPERTIES,
        _BEFORE_ID,
    )


class SendTemplate:
    r"""Sends of single messages to one queue.

    >>> queue = MessageQueue("orders", "broker-a", 3)
    >>> template = SendTemplate("shop", queue, "TBW102", 4)
    >>> born = born_part(1_700_000_000_000, sys_flag=0)
    >>> parts = template.parts(9, b"paid", "7F00", "KEYS\x0142\x02", born)
    >>> parts[-1]
    b'paid'
    """

    __slots__ = ("_after_id", "_after_properties", "_end", "_fixed_bytes", "_start")

    def __init__(
        self, group: str, queue: MessageQueue, default_topic: str, default_topic_queues: int
    ) -> None:
        self._start, _, _, rest = _pieces(group, queue, default_topic, default_topic_queues)
        after, _, self._end = rest.rpartition(b"%d" % _OPAQUE)
        self._after_properties = b'"' + after
        self._after_id = _AFTER_ID + self._after_properties
        self._fixed_bytes = len(self._start) + len(self._after_id) + len(self._end)

    def parts(
        self, opaque: int, body: bytes, unique_id: str, more_properties: str, born: bytes
    ) -> tuple[bytes, ...]:
        """The frame of one send in parts, as `send_request` would have it.

        Whoever sends several joins the parts of all of them in one step. The id is made of hex
        digits; its properties come first, then the others. `born` is a `born_part`.

        Raises:
            ConfigurationError: the properties are not text, or the frame would be too long.
        """
        number, name, after_id = b"%d" % opaque, unique_id.encode(), self._after_id
        header_bytes = self._fixed_bytes + len(born) + len(name) + len(number)
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
        return words, self._start, born, name, after_id, number, self._end, body


def _inside_json(text: str) -> bytes:
    try:
        return _encode_json(text)[1:-1]
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"the keys, tags or properties are not text (a lone surrogate): {error}"
        ) from error
