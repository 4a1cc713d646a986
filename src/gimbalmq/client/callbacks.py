"""Functions that users hand over are looked at when they are given, not when they are first called.

A listener that cannot take its message would fail on every one, until all are dead letters.
"""

from __future__ import annotations

import inspect

from gimbalmq.errors import ConfigurationError

__all__ = ["check_callback"]


def check_callback(what: str, function: object, *arguments: str) -> None:
    """Refuse what cannot be called with these arguments; only their names are needed.

    >>> check_callback("listener", print, "message")

    Raises:
        ConfigurationError: it cannot be called, or not like that.
    """
    if not callable(function):
        raise ConfigurationError(f"{what} is {function!r}: give a function")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # built-in ones do not always say
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or repr(function)
        raise ConfigurationError(
            f"{what} {name}{signature} cannot be called ({error}): it gets {_listed(arguments)}"
        ) from error


def _listed(arguments: tuple[str, ...]) -> str:
    *others, last = arguments
    return f"{', '.join(others)} and {last}" if others else last
