"""The properties string of a message: `name U+0001 value U+0002`, repeated.

The last U+0002 is optional on input (4.9 leaves it out). Entries with an empty name or an empty
value do not exist for Java's reader, nor for this one; of a repeated name the last entry counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "decode_properties",
    "encode_properties",
    "find_property",
    "first_properties",
    "format_properties",
    "parse_properties",
]

_NAME_END: Final = "\x01"
_VALUE_END: Final = "\x02"


def format_properties(properties: Mapping[str, str]) -> str:
    r"""The properties string, as the send header carries it.

    Names and values must not contain U+0001 or U+0002: `Message` refuses them.

    >>> format_properties({"TAGS": "paid"})
    'TAGS\x01paid\x02'
    """
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def first_properties(unique_id: str) -> str:
    r"""What the properties string of every message that is sent begins with.

    >>> first_properties("7F00")
    'UNIQ_KEY\x017F00\x02WAIT\x01true\x02'
    """
    # WAIT: as Java, ask for the durability that the broker is configured for.
    return f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The properties string in UTF-8, as records and batches store it."""
    return format_properties(properties).encode()


def parse_properties(text: str) -> dict[str, str]:
    r"""Read a properties string as Java reads it.

    >>> parse_properties("a\x01b\x02c\x01\x02\x01x\x02d\x01e")
    {'a': 'b', 'd': 'e'}
    """
    properties: dict[str, str] = {}
    for entry in text.split(_VALUE_END):
        name, _, value = entry.partition(_NAME_END)
        if value and name:
            properties[name] = value
    return properties


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """Read properties from UTF-8; bytes that are no UTF-8 become U+FFFD, as in Java."""
    return parse_properties(str(data, "utf-8", "replace"))


def find_property(data: bytes, name: bytes) -> bytes | None:
    r"""The value of one property, without reading the others; None when absent.

    >>> find_property(b"WAIT\x01true\x02TAGS\x01paid\x02", b"TAGS")
    b'paid'
    """
    if not name:
        return None
    wanted = b"\x02" + name + b"\x01"
    before = len(data)
    while (at := data.rfind(wanted, 0, before)) >= 0:
        value_from = at + len(wanted)
        value_until = data.find(b"\x02", value_from)
        value = data[value_from:] if value_until < 0 else data[value_from:value_until]
        if value:
            return value
        before = at + 1  # the closing mark of the entry before may be this one's opening mark
    if data.startswith(wanted[1:]):
        return data[len(wanted) - 1 :].partition(b"\x02")[0] or None
    return None
