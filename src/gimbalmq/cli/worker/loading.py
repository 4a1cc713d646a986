"""Finds the consumer that a worker is to run, from `module:name`."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from types import ModuleType
from typing import Final

from gimbalmq import aio
from gimbalmq.client.push_consumer import PushConsumer
from gimbalmq.errors import ConfigurationError

__all__ = ["check_target", "load"]

_KINDS: Final = (PushConsumer, aio.PushConsumer)


def check_target(target: str) -> tuple[str, str]:
    """Split `module:name`, or say how it is written.

    >>> check_target("shop.billing:consumer")
    ('shop.billing', 'consumer')
    """
    module, _, name = target.partition(":")
    if not module or not name.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise ConfigurationError(
            f"'{target}' names no consumer: write module:name, such as shop.billing:consumer"
        )
    return module, name


def load(target: str) -> PushConsumer | aio.PushConsumer:
    """Import the module and return its consumer; a function of that name is called to make it.

    Raises:
        ConfigurationError: the module cannot be imported, or the name stands for something else.
    """
    module_name, name = check_target(target)
    module = _imported(module_name)
    if not hasattr(module, name):
        raise ConfigurationError(f"module '{module_name}' has no '{name}'{_hint(module)}")
    found = getattr(module, name)
    if inspect.isfunction(found):
        found = _made(target, found)
    if isinstance(found, _KINDS):
        return found
    raise ConfigurationError(
        f"{target} is {type(found).__name__}, not a PushConsumer, nor a function that returns "
        f"one{_hint(module)}"
    )


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigurationError(
                f"there is no module '{missing}' in {sys.path[0] or '.'} or among the installed "
                "ones: run the worker where the module is, or set PYTHONPATH"
            ) from error
        raise ConfigurationError(f"module '{name}' cannot be imported: {_where(error)}") from error
    except Exception as error:
        # Whatever the user's code raises; SystemExit and Ctrl-C go their way.
        raise ConfigurationError(f"module '{name}' cannot be imported: {_where(error)}") from error


def _made(target: str, make: object) -> object:
    assert callable(make)
    try:
        return make()
    except Exception as error:
        raise ConfigurationError(f"{target}() failed: {_where(error)}") from error


def _where(error: Exception) -> str:
    """The error, and the line of the user's code that it came from."""
    words = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        return words  # which names its line itself
    last = frames[-1]
    return f"{words} ({last.filename}, line {last.lineno})"


def _hint(module: ModuleType) -> str:
    consumers = [name for name, value in vars(module).items() if isinstance(value, _KINDS)]
    if not consumers:
        return ""
    return f"; its consumers are {', '.join(f'{module.__name__}:{name}' for name in consumers)}"
