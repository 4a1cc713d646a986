"""What surrounds a listener: hooks of the user, traces, and the bridge to coroutines.

Put together once, when a consumer starts or a topic is subscribed to; a listener without any of
these is called as it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gimbalmq.runtime.listening import Listener

__all__ = ["AfterHook", "AsyncListener", "BeforeHook", "with_hooks", "with_hooks_async"]

_log = logging.getLogger("gimbalmq.consumer")

#: Gets what the listener will get: a message, or a list of them.
BeforeHook = Callable[[Any], object]
#: A listener that is a coroutine function.
AsyncListener = Callable[[Any], Awaitable[object]]
#: Gets what the listener got, what it raised (None: nothing; a CancelledError when its task was
#: cancelled), and the seconds that it took.
AfterHook = Callable[[Any, BaseException | None, float], object]


def with_hooks(
    listener: Listener, before: Sequence[BeforeHook], after: Sequence[AfterHook]
) -> Listener:
    """The listener with hooks around it, in the order given; itself when there are none.

    What a hook before raises counts as raised by the listener, which is then not called: so a
    hook may refuse a message. What a hook after raises is logged and changes nothing.

    >>> seen = []
    >>> listener = with_hooks(print, [seen.append], [lambda message, error, took_s: None])
    >>> listener("paid"), seen
    paid
    (None, ['paid'])
    """
    if not (before or after):
        return listener

    def call(messages: Any) -> object:
        started = time.monotonic()
        try:
            for hook in before:
                hook(messages)
            result = listener(messages)
        except BaseException as error:  # also a cancellation: what hooks began has to end
            _tell(after, messages, error, time.monotonic() - started)
            raise
        _tell(after, messages, None, time.monotonic() - started)
        return result

    return call


def with_hooks_async(
    listener: AsyncListener, before: Sequence[BeforeHook], after: Sequence[AfterHook]
) -> AsyncListener:
    """As `with_hooks`, around a coroutine function; the hooks themselves do not wait."""
    if not (before or after):
        return listener

    async def call(messages: Any) -> object:
        started = time.monotonic()
        try:
            for hook in before:
                hook(messages)
            result = await listener(messages)
        except BaseException as error:  # also a cancellation: what hooks began has to end
            _tell(after, messages, error, time.monotonic() - started)
            raise
        _tell(after, messages, None, time.monotonic() - started)
        return result

    return call


def _tell(
    after: Sequence[AfterHook], messages: Any, error: BaseException | None, took_s: float
) -> None:
    for hook in after:
        try:
            hook(messages, error, took_s)
        except Exception:  # noqa: BLE001 - user code that must not change the listener's verdict
            _log.exception("a hook after the listener failed")
