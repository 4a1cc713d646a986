"""How a record is laid out: the numbers that all who write or read one agree on.

Says where the parts of a record are and how long they may be. Reads and writes nothing itself.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.wire.codes import SysFlag

__all__ = [
    "BORN_HOST_V6",
    "COMPRESSED",
    "HEAD_BYTES",
    "INNER_BATCH",
    "MAGIC_V1",
    "MAGIC_V2",
    "RECORD_BYTES_MIN",
    "STORE_HOST_V6",
    "TOPIC_BYTES_MAX_V1",
    "V6_EXTRA_BYTES",
]

MAGIC_V1: Final = -626843481
#: For topics longer than 127 bytes (5.1 and later): the topic's length has two bytes.
MAGIC_V2: Final = -626843477
TOPIC_BYTES_MAX_V1: Final = 127
#: A v1 record with IPv4 hosts, an empty body, topic and properties.
RECORD_BYTES_MIN: Final = 91
#: Where the body of a record with IPv4 hosts begins.
HEAD_BYTES: Final = 88
#: How much longer an IPv6 host is than an IPv4 one.
V6_EXTRA_BYTES: Final = 12

# Flags as plain integers: operators of enum members are an order of magnitude slower.
BORN_HOST_V6: Final = int(SysFlag.BORN_HOST_V6)
STORE_HOST_V6: Final = int(SysFlag.STORE_HOST_V6)
COMPRESSED: Final = int(SysFlag.COMPRESSED)
#: The body is a batch of messages if a record has all of these bits.
INNER_BATCH: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
