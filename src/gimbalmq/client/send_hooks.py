"""What surrounds a send: a hook that may change messages before and is told the outcome after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from gimbalmq.model.message import Message, SendResult

__all__ = ["SendDone", "SendHook", "hooked", "hooked_async", "hooked_future"]

_T = TypeVar("_T")

#: Gets the results, empty when nobody waits for any, or what was raised.
SendDone = Callable[[Sequence[SendResult] | BaseException], None]
#: Gets the messages of one call; returns those to send instead, and whom to tell the outcome.
SendHook = Callable[[Sequence[Message]], tuple[Sequence[Message], SendDone]]


def hooked(
    hook: SendHook, messages: Sequence[Message], send: Callable[[Sequence[Message]], _T]
) -> _T:
    """Send with the hook around it."""
    changed, done = hook(messages)
    try:
        result = send(changed)
    except BaseException as error:
        done(error)
        raise
    done(_results(result))
    return result


async def hooked_async(
    hook: SendHook,
    messages: Sequence[Message],
    send: Callable[[Sequence[Message]], Awaitable[_T]],
) -> _T:
    """Send with the hook around it; the hook itself does not wait."""
    changed, done = hook(messages)
    try:
        result = await send(changed)
    except BaseException as error:  # also a cancellation: nobody learns more of it
        done(error)
        raise
    done(_results(result))
    return result


def _results(sent: object) -> Sequence[SendResult]:
    """What a hook is told of a send that went well."""
    match sent:
        case SendResult():
            return (sent,)
        case tuple():
            return sent
    return ()


def hooked_future(
    hook: SendHook,
    messages: Sequence[Message],
    send: Callable[[Sequence[Message]], Future[SendResult]],
) -> Future[SendResult]:
    """Send with the hook around it; the outcome is that of the future."""
    changed, done = hook(messages)
    try:
        future = send(changed)
    except BaseException as error:
        done(error)
        raise

    def ended(sent: Future[SendResult]) -> None:
        error = sent.exception()
        done((sent.result(),) if error is None else error)

    future.add_done_callback(ended)
    return future
