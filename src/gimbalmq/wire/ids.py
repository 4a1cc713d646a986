"""The two ids of a message: where it is stored, and what its sender called it.

An offset id is the broker's address and the place in its log. A unique id is made by the sender
of address, process, time and a counter; brokers treat it as text. Both are upper-case hex.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
from datetime import datetime
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError

__all__ = [
    "IDS_AT_ONCE",
    "OffsetId",
    "UniqueId",
    "UniqueIds",
    "format_offset_id",
    "host_text",
    "month_start_ms",
    "pack_host",
    "parse_offset_id",
    "parse_unique_id",
]

#: Hex digits with an IPv4 and with an IPv6 address; the same for both kinds of id.
_DIGITS_V4: Final = 32
_DIGITS_V6: Final = 56
#: As many fit into one millisecond.
IDS_AT_ONCE: Final = 1 << 16
#: Every byte in hex: to look one up is quicker than to write one down.
_HEX: Final = tuple(f"{byte:02X}" for byte in range(256))


class OffsetId(msgspec.Struct, frozen=True):
    """An offset message id taken apart; `offset` is the commit-log offset."""

    host: str
    port: int
    offset: int


class UniqueId(msgspec.Struct, frozen=True):
    """A unique id taken apart."""

    ip: str
    pid: int
    salt: int
    ms_since_month_start: int
    counter: int


@functools.lru_cache(maxsize=4096)
def pack_host(host: str, port: int) -> bytes:
    """Address bytes (4 or 16) and the port as four bytes, as records and ids hold them.

    >>> pack_host("127.0.0.1", 10911).hex()
    '7f00000100002a9f'
    """
    try:
        return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"'{host}:{port}' cannot be stored in a record: give an IP address, not a name"
        ) from error


@functools.lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """`ip:port` of address bytes followed by a four-byte port; hosts are few and remembered.

    >>> host_text(bytes.fromhex("7f00000100002a9f"))
    '127.0.0.1:10911'
    """
    port = int.from_bytes(packed[-4:], "big")
    if len(packed) == 8:
        first, second, third, fourth = packed[:4]
        return f"{first}.{second}.{third}.{fourth}:{port}"
    return f"{ipaddress.IPv6Address(packed[:-4])}:{port}"


def format_offset_id(host: str, port: int, offset: int) -> str:
    """The id of the message at a commit-log offset of a broker.

    >>> format_offset_id("127.0.0.1", 10911, 1024)
    '7F00000100002A9F0000000000000400'
    """
    return (pack_host(host, port) + offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_id(text: str) -> OffsetId:
    """Read an offset message id.

    >>> parse_offset_id("7F00000100002A9F0000000000000400")
    OffsetId(host='127.0.0.1', port=10911, offset=1024)
    """
    packed = _unhex(text, "offset message id")
    return OffsetId(
        str(ipaddress.ip_address(packed[:-12])),
        int.from_bytes(packed[-12:-8], "big"),
        int.from_bytes(packed[-8:], "big", signed=True),
    )


def parse_unique_id(text: str) -> UniqueId:
    """Read a unique id (property UNIQ_KEY) made by this package or by Java."""
    packed = _unhex(text, "unique message id")
    return UniqueId(
        str(ipaddress.ip_address(packed[:-12])),
        int.from_bytes(packed[-12:-10], "big"),
        int.from_bytes(packed[-10:-6], "big", signed=True),
        int.from_bytes(packed[-6:-2], "big"),
        int.from_bytes(packed[-2:], "big"),
    )


def _unhex(text: str, kind: str) -> bytes:
    if len(text) in {_DIGITS_V4, _DIGITS_V6} and text.isascii() and text.isalnum():
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise ConfigurationError(
        f"'{text}' is no {kind}: it has {_DIGITS_V4} hex digits, or {_DIGITS_V6} with IPv6"
    )


def month_start_ms(now: datetime) -> int:
    """Milliseconds since the epoch of the first instant of `now`'s month, in its time zone."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(first.timestamp() * 1000)


class UniqueIds:
    """Makes unique ids for one process.

    `salt` tells apart what the process id does not (containers that all run as pid 1): give
    random bits. Calls from several threads never give the same id; up to 65,536 ids fit into one
    millisecond.

    >>> ids = UniqueIds("127.0.0.1", pid=61, salt=0x4E1A2B00)
    >>> ids.next(now_ms=1_700_000_000_000, month_started_ms=1_698_796_800_000)
    '7F000001003D4E1A2B0047B760000000'
    """

    __slots__ = ("_counter", "_head", "_prefix", "digits")

    def __init__(self, ip: str, pid: int, salt: int) -> None:
        address = pack_host(ip, 0)[:-4]
        tail = (pid & 0xFFFF).to_bytes(2, "big") + (salt & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = (address + tail).hex().upper()
        self._counter = itertools.count()
        #: How long its ids are.
        self.digits = len(self._head_at(0, 0)) + 4
        #: The moment that was written down last, and how; replaced as one.
        self._head: tuple[int, int, str] = (-1, 0, "")

    def next(self, now_ms: int, month_started_ms: int) -> str:
        """A new id for a message born at `now_ms`."""
        known_ms, known_month_ms, head = self._head
        if known_ms != now_ms or known_month_ms != month_started_ms:
            head = self._head_at(now_ms, month_started_ms)
            self._head = (now_ms, month_started_ms, head)
        number = next(self._counter)
        return f"{head}{_HEX[number >> 8 & 0xFF]}{_HEX[number & 0xFF]}"

    def many(self, count: int, now_ms: int, month_started_ms: int) -> list[str]:
        """New ids for messages born at `now_ms`, up to `IDS_AT_ONCE`."""
        assert count <= IDS_AT_ONCE, "more ids than fit into a millisecond"
        head = self._head_at(now_ms, month_started_ms)
        return [
            f"{head}{_HEX[number >> 8 & 0xFF]}{_HEX[number & 0xFF]}"
            for number in itertools.islice(self._counter, count)
        ]

    def _head_at(self, now_ms: int, month_started_ms: int) -> str:
        return f"{self._prefix}{(now_ms - month_started_ms) & 0xFFFFFFFF:08X}"
