"""Reads the header fields of a request, refusing what a handler cannot work without.

As in Java, text that is no number counts as absent, and an absent field that is needed ends the
request with SYSTEM_ERROR.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.broker.effects import RefusalError
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command

__all__ = [
    "flag",
    "flag_or",
    "number",
    "number_if_given",
    "number_or",
    "retries_max",
    "text",
    "text_or",
]

_LONG: Final = 1 << 63
_DIGITS_MAX: Final = 20
#: From this client version on (3.4.9) a consumer says itself how often is too often.
_RETRIES_VERSION: Final = 121


def text(request: Command, name: str) -> str:
    """A field that must be there and not empty."""
    value = request.fields.get(name)
    if not value:
        raise _missing(request, name)
    return value


def text_or(request: Command, name: str, default: str = "") -> str:
    """A field that may be absent."""
    return request.fields.get(name, default)


def number(request: Command, name: str) -> int:
    """A number that must be there."""
    value = _read(request.fields.get(name))
    if value is None:
        raise _missing(request, name)
    return value


def number_or(request: Command, name: str, default: int = 0) -> int:
    """A number that may be absent."""
    value = _read(request.fields.get(name))
    return default if value is None else value


def number_if_given(request: Command, name: str) -> int | None:
    """A number, or None when it is absent."""
    return _read(request.fields.get(name))


def retries_max(request: Command, name: str) -> int | None:
    """How often a consumer wants a message tried again; None when the group's setting counts."""
    return number_if_given(request, name) if request.version >= _RETRIES_VERSION else None


def flag(request: Command, name: str) -> bool:
    """Whether a field is there and true."""
    return request.fields.get(name, "").lower() == "true"


def flag_or(request: Command, name: str, *, default: bool) -> bool:
    """A truth value that may be absent."""
    return flag(request, name) if name in request.fields else default


def _read(value: str | None) -> int | None:
    if value is None or len(value) > _DIGITS_MAX:
        return None
    try:
        read = int(value)
    except ValueError:
        return None
    return read if -_LONG <= read < _LONG else None


def _missing(request: Command, name: str) -> RefusalError:
    return RefusalError(
        ResponseCode.SYSTEM_ERROR,
        f"request {request.code} has no usable field '{name}': it has {sorted(request.fields)}",
    )
