"""The message as users receive it: a lazy view over the bytes of one record.

The body is cut out already; any other field is read from the bytes when it is asked for, and not
before. That the bytes are a record, and where its body is, `record` has seen; a topic or properties
that cannot be read are found out here.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from gimbalmq.errors import ProtocolError
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.batch import walk_batch
from gimbalmq.wire.compression import compression_of, decompress
from gimbalmq.wire.ids import host_text
from gimbalmq.wire.names import without_namespace
from gimbalmq.wire.properties import decode_properties, find_property
from gimbalmq.wire.record_layout import (
    BORN_HOST_V6,
    COMPRESSED,
    MAGIC_V1,
    STORE_HOST_V6,
    TOPIC_BYTES_MAX_V1,
    V6_EXTRA_BYTES,
)

__all__ = ["CompressedMessage", "PullResult", "ReceivedMessage"]

_MAGIC_V1_LAST_BYTE: Final = MAGIC_V1 & 0xFF

_int: Final = struct.Struct(">i").unpack_from
_long: Final = struct.Struct(">q").unpack_from
_short: Final = struct.Struct(">h").unpack_from
_set_int: Final = struct.Struct(">i").pack_into
_set_unsigned: Final = struct.Struct(">Q").pack_into

_FLAG_AT: Final = 16
_QUEUE_OFFSET_AT: Final = 20
_SYS_FLAG_AT: Final = 36

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ReceivedMessage(msgspec.Struct, gc=False, eq=False):
    r"""A message as it came from a broker; nothing is decoded until asked for.

    `topic` is the topic the message was sent to, also when it comes back through a retry topic;
    `queue` and `record_topic` say where it is stored. `properties` holds everything that was
    stored with it, RocketMQ's own entries included.

    A message holds the bytes of its own record, whatever else its pull answer brought.

    >>> from gimbalmq.wire.record import decode_records, encode_record
    >>> data = encode_record(topic="orders", body=b"paid", properties=b"TAGS\x01new\x02")
    >>> message = decode_records(data, "broker-a")[0]
    >>> message.topic, message.body, message.tags
    ('orders', b'paid', 'new')
    """

    #: The record up to its body.
    _head: bytes
    #: The body, decompressed.
    body: bytes
    #: The record behind its body: topic and properties.
    _tail: bytes
    broker: str
    _topic: str | None = None
    _raw: bytes | None = None
    _properties: dict[str, str] | None = None
    #: How often a listener of this process has failed on it since it was received.
    attempts: int = 0
    #: The namespace of the one who reads it, which `topic` and `queue` leave out.
    namespace: str | None = None

    @property
    def stored_body(self) -> bytes:
        """The body as stored: still compressed if it was sent so."""
        return self.body

    @property
    def sys_flag(self) -> int:
        """What RocketMQ notes of the record, as `SysFlag` bits."""
        number: int = _int(self._head, _SYS_FLAG_AT)[0]
        return number

    @property
    def store_size(self) -> int:
        """How many bytes the record has."""
        number: int = _int(self._head)[0]
        return number

    @property
    def record_topic(self) -> str:
        """The topic that the record is stored under, for example `%RETRY%group`."""
        topic = self._topic
        if topic is None:
            topic_from, topic_until = self._topic_place()
            self._topic = topic = str(self._tail[topic_from:topic_until], "utf-8", "replace")
        return topic

    @property
    def topic(self) -> str:
        """The topic that the message was sent to."""
        topic = self.record_topic
        if topic.startswith("%RETRY%"):
            topic = self.property_value("RETRY_TOPIC") or topic
        return topic if self.namespace is None else without_namespace(topic, self.namespace)

    @property
    def queue(self) -> MessageQueue:
        """The queue that holds the record, and in which `queue_offset` counts."""
        topic = self.record_topic
        if self.namespace is not None:
            topic = without_namespace(topic, self.namespace)
        return MessageQueue(topic, self.broker, self.queue_id)

    @property
    def queue_offset(self) -> int:
        """Number of the message in its queue."""
        number: int = _long(self._head, _QUEUE_OFFSET_AT)[0]
        return number

    @property
    def queue_id(self) -> int:
        """Number of the queue that holds the record."""
        number: int = _int(self._head, 12)[0]
        return number

    @property
    def properties(self) -> dict[str, str]:
        """All properties; decoded once, the same dict each time."""
        if self._properties is None:
            self._properties = decode_properties(self.stored_properties)
        return self._properties

    def property_value(self, name: str) -> str | None:
        """One property; None when absent.

        The first is looked up without decoding the others; with the second, decoding pays off.
        """
        if self._raw is not None:
            return self.properties.get(name)
        value = find_property(self.stored_properties, name.encode())
        return None if value is None else str(value, "utf-8", "replace")

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.property_value("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys under which the message can be found."""
        return tuple((self.property_value("KEYS") or "").split())

    @property
    def message_id(self) -> str:
        """The sender's unique id; the offset id for messages sent without one."""
        return self.property_value("UNIQ_KEY") or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Address of the broker and place in its log, as upper-case hex."""
        host_from, host_until = self._store_host_place()
        return (self._head[host_from:host_until] + self._head[28:36]).hex().upper()

    @property
    def born_at(self) -> datetime:
        """When the sender made the message, by its clock."""
        return _moment(self.born_timestamp_ms)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored the message, by its clock."""
        return _moment(self.store_timestamp_ms)

    @property
    def born_timestamp_ms(self) -> int:
        """`born_at` in milliseconds since the epoch."""
        number: int = _long(self._head, 40)[0]
        return number

    @property
    def store_timestamp_ms(self) -> int:
        """`stored_at` in milliseconds since the epoch."""
        number: int = _long(self._head, 56 + self._born_extra())[0]
        return number

    @property
    def born_host(self) -> str:
        """`ip:port` of the sender."""
        return host_text(self._head[48 : 56 + self._born_extra()])

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
        host_from, host_until = self._store_host_place()
        return host_text(self._head[host_from:host_until])

    @property
    def reconsume_times(self) -> int:
        """How many times consumption failed before, at other members or here."""
        number: int = _int(self._head, self._after_hosts())[0]
        return number + self.attempts

    @property
    def prepared_transaction_offset(self) -> int:
        """Place of the half message in the log, for messages of a transaction."""
        number: int = _long(self._head, self._after_hosts() + 4)[0]
        return number

    @property
    def physical_offset(self) -> int:
        """Place of the record in the broker's log."""
        number: int = _long(self._head, 28)[0]
        return number

    @property
    def flag(self) -> int:
        """The sender's own number, which RocketMQ does not interpret."""
        number: int = _int(self._head, _FLAG_AT)[0]
        return number

    @property
    def body_crc(self) -> int:
        """CRC-32 of the stored body without its top bit, as the record states it."""
        number: int = _int(self._head, 8)[0]
        return number

    def _born_extra(self) -> int:
        """How much longer than IPv4 the born host is."""
        return V6_EXTRA_BYTES if self.sys_flag & BORN_HOST_V6 else 0

    def _store_host_place(self) -> tuple[int, int]:
        host_from = 64 + self._born_extra()
        return host_from, host_from + (20 if self.sys_flag & STORE_HOST_V6 else 8)

    def _after_hosts(self) -> int:
        # Three fields of fixed size stand between the hosts and the body.
        return len(self._head) - 16

    def _topic_place(self) -> tuple[int, int]:
        if self._head[7] == _MAGIC_V1_LAST_BYTE:
            # Java's byte is signed: above 127 the record is corrupt, not a longer topic.
            topic_from, length = 1, self._tail[0]
            plausible = length <= TOPIC_BYTES_MAX_V1
        else:
            topic_from, length = 2, _short(self._tail)[0]
            plausible = length >= 0
        topic_until = topic_from + length
        if not plausible or topic_until + 2 > len(self._tail):
            raise self._unreadable(f"its topic has {length} bytes")
        return topic_from, topic_until

    @property
    def stored_properties(self) -> bytes:
        """The properties string as stored."""
        raw = self._raw
        if raw is None:
            self._raw = raw = self._cut_properties()
        return raw

    def _cut_properties(self) -> bytes:
        at = self._topic_place()[1]
        properties_until = at + 2 + _short(self._tail, at)[0]
        if not at + 2 <= properties_until <= len(self._tail):
            raise self._unreadable("its properties do not fit")
        return self._tail[at + 2 : properties_until]

    def _unreadable(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"record at queue offset {self.queue_offset} of broker '{self.broker}' is corrupt: "
            f"{what}"
        )

    def inner_messages(self) -> list[ReceivedMessage]:
        """The messages of an inner-batch record, which share everything but body and properties."""
        batch, head = self.body, bytearray(self._head)
        # If anything was compressed, it was the batch.
        _set_int(head, _SYS_FLAG_AT, self.sys_flag & ~COMPRESSED)
        messages: list[ReceivedMessage] = []
        for index, (flag, body_from, body_until, from_, until) in enumerate(walk_batch(batch)):
            _set_int(head, _FLAG_AT, flag)
            # Wraps as Java's would, should the record be corrupt.
            offset = (self.queue_offset + index) & 0xFFFFFFFFFFFFFFFF
            _set_unsigned(head, _QUEUE_OFFSET_AT, offset)
            message = ReceivedMessage(
                bytes(head), batch[body_from:body_until], self._tail, self.broker
            )
            message._raw = batch[from_:until]
            messages.append(message)
        return messages

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue={self.queue.path}, "
            f"queue_offset={self.queue_offset}, message_id={self.message_id!r}, "
            f"body={len(self.stored_body)} bytes)"
        )


class CompressedMessage(ReceivedMessage, gc=False, eq=False):
    """A message whose body is compressed, and stays so until it is asked for."""

    _stored: bytes = b""
    _expanded: bytes | None = None

    @property  # type: ignore[misc] # a field of others, which nobody sets here
    def body(self) -> bytes:  # type: ignore[override]
        """The body, decompressed."""
        if self._expanded is None:
            self._expanded = _expand(self._stored, self.sys_flag)
        return self._expanded

    @property
    def stored_body(self) -> bytes:
        """The body as stored."""
        return self._stored


class PullResult(msgspec.Struct, frozen=True):
    """What one pull brought: messages, where to go on, and what the queue stores.

    `next_offset` is the next offset to read, `minimum` the first that is stored, `maximum` one
    past the last.

    >>> result = PullResult(PullStatus.FOUND, (), next_offset=8, minimum=0, maximum=10)
    >>> result.maximum - result.next_offset
    2
    """

    status: PullStatus
    messages: tuple[ReceivedMessage, ...]
    next_offset: int
    minimum: int
    maximum: int


def _expand(stored: bytes, sys_flag: int) -> bytes:
    compression = compression_of(sys_flag)
    return stored if compression is None else decompress(stored, compression)


def _moment(timestamp_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError as error:
        raise ProtocolError(f"time stamp {timestamp_ms} ms is beyond the year 9999") from error
