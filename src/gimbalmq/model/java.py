"""Java's rules for text, which every member of a group must share.

Members agree on who owns a queue because each sorts the same names in the same order and hashes
the same text to the same number. Both follow Java strings, which are sequences of UTF-16 units.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["hash_code", "hash_code_long", "sorted_as_java", "utf16_key"]


def utf16_key(text: str) -> bytes:
    r"""Sort key that orders text as Java's `String.compareTo` does.

    Differs from Python's order only where a supplementary character meets U+E000..U+FFFF.

    >>> sorted(["\U0001f600", "\ufb00"], key=utf16_key) == ["\U0001f600", "\ufb00"]
    True
    """
    return text.encode("utf-16-be", "surrogatepass")


def sorted_as_java(names: Iterable[str]) -> list[str]:
    """Names in Java's order, repeated names kept.

    >>> sorted_as_java(["10.0.0.1@9#1", "10.0.0.10@9#1"])
    ['10.0.0.10@9#1', '10.0.0.1@9#1']
    """
    listed = list(names)
    if all(map(str.isascii, listed)):  # the two orders agree on ASCII, and this one is faster
        return sorted(listed)
    return sorted(listed, key=utf16_key)


def hash_code(text: str) -> int:
    """Java's `String.hashCode`: 31-fold over UTF-16 units, as a signed 32-bit integer.

    >>> hash_code("TagA")
    2598919
    """
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def hash_code_long(number: int) -> int:
    """Java's `Long.hashCode`: low word xor high word, as a signed 32-bit integer.

    >>> hash_code_long(12345678901)
    -539222985
    """
    word = (number ^ (number >> 32)) & 0xFFFFFFFF
    return word - 0x100000000 if word >= 0x80000000 else word
