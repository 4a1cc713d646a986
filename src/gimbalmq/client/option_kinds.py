"""Options of clients are of the kinds that their annotations say, and have the names that exist.

Decides what is said of an option that is no number, or is misspelt, before anybody compares or
stores it: `ordered="no"` would switch it on. Ranges are the business of those who read the options.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import typing
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, cast

from gimbalmq.client.access import AccessOptions
from gimbalmq.client.options import check_options
from gimbalmq.errors import ConfigurationError

__all__ = ["options_checked"]

F = TypeVar("F", bound=Callable[..., None])

_WORDS: Final[dict[type, str]] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "None",
}
#: Options whose readers say more about them than their kind.
_SAID_ELSEWHERE: Final = frozenset({"nameserver", *AccessOptions.__annotations__})


def options_checked(tuning: type[Any]) -> Callable[[F], F]:
    """Check the options of a constructor whose further ones are those of a TypedDict."""

    def around(init: F) -> F:
        @functools.cache
        def kinds() -> dict[str, tuple[type, ...] | None]:
            own = typing.get_type_hints(init)
            hints = {name: own[name] for name in _keywords(init)} | typing.get_type_hints(tuning)
            return {name: _kinds(hint) for name, hint in hints.items()}

        @functools.wraps(init)
        def checked(self: object, *arguments: Any, **options: Any) -> None:
            check_options(options, {*kinds(), *_positional(init)})
            _check_kinds(options, kinds())
            init(self, *arguments, **options)

        return cast("F", checked)

    return around


def _keywords(init: Callable[..., None]) -> list[str]:
    parameters = inspect.signature(init).parameters.values()
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]


def _positional(init: Callable[..., None]) -> list[str]:
    parameters = inspect.signature(init).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return names[1:]  # without self


def _kinds(hint: Any) -> tuple[type, ...] | None:
    """The classes that an option may be of; None: they cannot be told by `isinstance`."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in {UnionType, typing.Union} else ()
    classes = parts or (hint,)
    return tuple(classes) if all(isinstance(one, type) for one in classes) else None


def _check_kinds(options: Mapping[str, Any], known: Mapping[str, tuple[type, ...] | None]) -> None:
    for name, value in options.items():
        kinds = known.get(name)
        if kinds is None or name in _SAID_ELSEWHERE:
            continue
        if not any(_is(value, kind) for kind in kinds):
            words = [_WORDS.get(kind, f"a {kind.__name__}") for kind in kinds]
            raise ConfigurationError(f"{name} is {value!r}: give {' or '.join(words)}")


def _is(value: object, kind: type) -> bool:
    if kind in {int, float} and isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, numbers.Integral)
    if kind is float:
        return isinstance(value, numbers.Real) and not math.isnan(value)
    return isinstance(value, kind)
