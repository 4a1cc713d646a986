"""What of a message's properties the indexes hold: the hash of its tag, the hashes of its keys.

All three properties are found in one pass, because every append pays for it. Hashes of keys start
from the topic, so that equal keys of different topics rarely meet.
"""

from __future__ import annotations

import functools
import re
import zlib
from typing import Final

from gimbalmq.model.java import hash_code
from gimbalmq.wire.properties import find_property

__all__ = ["has_key", "index_terms", "key_hash", "key_seed"]

#: Name and value, at the start or after the end of another property; of a repeated name the last
#: one counts, and empty values do not exist (see `wire.properties`).
_find_terms: Final = re.compile(rb"(?<![^\x02])(TAGS|KEYS|UNIQ_KEY)\x01([^\x02]+)").findall


@functools.lru_cache(maxsize=4096)
def _tag_hash(tag: bytes) -> int:
    return hash_code(str(tag, "utf-8", "replace"))


def key_seed(topic: str) -> int:
    """Where the hash of every key of a topic starts."""
    return zlib.crc32(topic.encode("utf-8", "replace") + b"#")


def key_hash(topic: str, key: bytes) -> int:
    """The hash of one key of a topic."""
    return zlib.crc32(key, key_seed(topic))


def index_terms(properties: bytes, seed: int) -> tuple[int, list[int]]:
    r"""Java's hash of the tag (0 without one), and the hashes of unique id and keys.

    >>> seed = key_seed("orders")
    >>> index_terms(b"WAIT\x01true\x02TAGS\x01TagA\x02", seed)
    (2598919, [])
    >>> index_terms(b"KEYS\x01a b\x02", seed)[1] == [key_hash("orders", b"a"), key_hash("orders", b"b")]
    True
    """
    tag: bytes | None = None
    words: bytes | None = None
    hashes: list[int] = []
    for name, value in _find_terms(properties):
        if name == b"UNIQ_KEY":
            hashes = [zlib.crc32(value, seed)]
        elif name == b"TAGS":
            tag = value
        else:
            words = value
    if words is not None:
        hashes += [zlib.crc32(word, seed) for word in dict.fromkeys(words.split())]
    return 0 if tag is None else _tag_hash(tag), hashes


def has_key(properties: bytes, key: bytes) -> bool:
    """Whether a message has this unique id, or this word among its keys."""
    if find_property(properties, b"UNIQ_KEY") == key:
        return True
    return key in (find_property(properties, b"KEYS") or b"").split()
