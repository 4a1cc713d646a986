"""The message record: commit-log entry and wire form in one.

A pull answer is records back to back. `decode_records` cuts it into messages, each of which holds
its own record: the body, and what is before and behind it. Records that are alike are cut all at
once (`alike`), others one after the other. What their fields say, `received` reads when asked.
`encode_record` makes a record.
"""

from __future__ import annotations

import struct
import zlib
from itertools import repeat
from typing import Final

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.alike import cut_alike
from gimbalmq.wire.ids import pack_host
from gimbalmq.wire.received import CompressedMessage, ReceivedMessage
from gimbalmq.wire.record_layout import (
    BORN_HOST_V6,
    COMPRESSED,
    HEAD_BYTES,
    INNER_BATCH,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
    TOPIC_BYTES_MAX_V1,
    V6_EXTRA_BYTES,
)

# Whoever decodes records has to do with messages: their class has its name here, too.
__all__ = ["ReceivedMessage", "decode_records", "encode_record"]

#: An empty topic and no properties.
_TAIL_BYTES_MIN: Final = RECORD_BYTES_MIN - HEAD_BYTES
_HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
#: Flags of records whose body is not where it nearly always is, or is not the message's.
_UNUSUAL: Final = _HOSTS_V6 | INNER_BATCH | COMPRESSED
_MAGICS: Final = frozenset({MAGIC_V1, MAGIC_V2})
_PROPERTIES_BYTES_MAX: Final = 32767

#: size, magic, sysFlag, body length (where it is with two IPv4 hosts)
_walk: Final = struct.Struct(">ii28xi44xi").unpack_from
_int: Final = struct.Struct(">i").unpack_from

#: size, magic, CRC, queue id, flag, queue offset, physical offset, sysFlag, born time
_head: Final = struct.Struct(">iiiiiqqiq")
#: reconsume times, prepared transaction offset, body length
_middle: Final = struct.Struct(">iqi")


def decode_records(buffer: bytes | bytearray | memoryview, broker: str) -> list[ReceivedMessage]:
    """The messages of a pull, pop, query or view answer; inner batches are expanded.

    Raises:
        ProtocolError: a record is cut off or is no record; the text says where.
    """
    alike = cut_alike(buffer)
    if alike is not None:
        return list(map(ReceivedMessage, *alike, repeat(broker)))
    return _decode_in_turn(buffer if isinstance(buffer, bytes) else bytes(buffer), broker)


def _decode_in_turn(data: bytes, broker: str) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    append = messages.append
    position, end = 0, len(data)
    last = end - RECORD_BYTES_MIN
    while position <= last:
        size, magic, sys_flag, body_bytes = _walk(data, position)
        body_from = position + HEAD_BYTES
        body_until = body_from + body_bytes
        until = position + size
        if (
            magic == MAGIC_V1
            and not (sys_flag and sys_flag & _UNUSUAL)
            and body_from <= body_until <= until - _TAIL_BYTES_MIN
        ):
            message = ReceivedMessage(
                data[position:body_from], data[body_from:body_until], data[body_until:until], broker
            )
            append(message)
        else:
            messages += _read_unusual(data, position, broker)
        position = until
    if position != end:
        raise _cut_off(data, position)
    return messages


def _read_unusual(data: bytes, position: int, broker: str) -> list[ReceivedMessage]:
    """The messages of a record that is compressed, has long hosts or a long topic, or is none."""
    size, magic, sys_flag, body_bytes = _walk(data, position)
    left = len(data) - position
    if magic not in _MAGICS:
        raise _corrupt(position, f"it starts with {magic & 0xFFFFFFFF:#010x}, no magic number")
    if not RECORD_BYTES_MIN <= size <= left:
        raise _corrupt(position, f"its size is {size}, {left} bytes are left")
    body_from = position + HEAD_BYTES
    if sys_flag & _HOSTS_V6:
        body_from, body_bytes = _body_after_v6(data, position, size, sys_flag)
    body_until = body_from + body_bytes
    if body_bytes < 0 or body_until + _TAIL_BYTES_MIN > position + size:
        raise _corrupt(position, f"its size is {size}, its body has {body_bytes} bytes")
    head, body = data[position:body_from], data[body_from:body_until]
    tail = data[body_until : position + size]
    message = (
        CompressedMessage(head, b"", tail, broker, _stored=body)
        if sys_flag & COMPRESSED
        else ReceivedMessage(head, body, tail, broker)
    )
    return message.inner_messages() if sys_flag & INNER_BATCH == INNER_BATCH else [message]


def _cut_off(data: bytes, position: int) -> ProtocolError:
    """Why the records do not end where the bytes do; `position` is where the last one ends."""
    end = len(data)
    if position < end:
        return _corrupt(position, f"only {end - position} of {end} bytes are left")
    start = 0
    while (following := start + _int(data, start)[0]) != position:
        start = following
    return _corrupt(start, f"its size is {position - start}, {end - start} bytes are left")


def _body_after_v6(data: bytes, position: int, size: int, sys_flag: int) -> tuple[int, int]:
    """Where the body starts, and its length, when one host or both are IPv6."""
    extra = V6_EXTRA_BYTES * (sys_flag & _HOSTS_V6).bit_count()
    if size < RECORD_BYTES_MIN + extra:
        raise _corrupt(position, f"its size is {size}, too small for IPv6 hosts")
    return position + HEAD_BYTES + extra, _int(data, position + 84 + extra)[0]


def _corrupt(position: int, what: str) -> ProtocolError:
    return ProtocolError(f"record at byte {position} is corrupt or cut off: {what}")


def encode_record(
    *,
    topic: str,
    body: bytes,
    properties: bytes = b"",
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    sys_flag: int = 0,
    flag: int = 0,
    born_timestamp_ms: int = 0,
    born_host: tuple[str, int] = ("127.0.0.1", 0),
    store_timestamp_ms: int = 0,
    store_host: tuple[str, int] = ("127.0.0.1", 0),
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """One record.

    `body` is stored as given; when it is compressed, `sys_flag` must say so. The IPv6 bits of
    `sys_flag` follow the hosts, the CRC is computed, and the version is v1 unless the topic needs
    v2.
    """
    born, store = pack_host(*born_host), pack_host(*store_host)
    sys_flag &= ~_HOSTS_V6
    if len(born) > 8:
        sys_flag |= BORN_HOST_V6
    if len(store) > 8:
        sys_flag |= STORE_HOST_V6
    name = topic.encode()
    if len(name) <= TOPIC_BYTES_MAX_V1:
        magic, name_length = MAGIC_V1, len(name).to_bytes(1, "big")
    else:
        magic, name_length = MAGIC_V2, len(name).to_bytes(2, "big")
    if len(properties) > _PROPERTIES_BYTES_MAX or len(name) > _PROPERTIES_BYTES_MAX:
        raise ConfigurationError(
            f"a record for topic '{topic[:40]}' has {len(properties)} bytes of properties and a "
            f"topic of {len(name)}: RocketMQ stores at most {_PROPERTIES_BYTES_MAX} of each"
        )
    hosts_bytes = len(born) + len(store)
    size = 72 + hosts_bytes + len(body) + len(name_length) + len(name) + 2 + len(properties)
    return b"".join(
        (
            _head.pack(
                size,
                magic,
                zlib.crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
            ),
            born,
            store_timestamp_ms.to_bytes(8, "big", signed=True),
            store,
            _middle.pack(reconsume_times, prepared_transaction_offset, len(body)),
            body,
            name_length,
            name,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    )
