"""What a flow may wait for, and the typed helpers that wait for it.

A flow is a generator. It yields an effect and is resumed with the result, or with an exception
thrown in; it returns its result. Drivers (`runtime`) resume it on a blocking socket, on the
engine thread, or in virtual time; the flow cannot tell. Flows use the helpers with `yield from`,
so that type checkers know what comes back.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gimbalmq.errors import AccessDeniedError, BrokerError, GimbalError, TopicNotFoundError
from gimbalmq.wire.acl import is_denial
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command

__all__ = [
    "Call",
    "Flow",
    "FlowEffect",
    "Instant",
    "Notify",
    "Now",
    "Sleep",
    "Together",
    "broker_error",
    "call",
    "checked_call",
    "notify",
    "now",
    "sleep",
    "together",
]

_T = TypeVar("_T")

#: Brokers answer administrators with 16 threads, and one that asks a silent member keeps a thread
#: for 10 s: half of them are left to others.
_AT_ONCE: Final = 8


class Call(msgspec.Struct, frozen=True):
    """Send a request and wait for its answer; resumed with the answering command.

    Resumed with a `TransportError` when the connection fails, or `CallTimeoutError` in time.
    """

    address: str
    command: Command
    timeout_s: float


class Notify(msgspec.Struct, frozen=True):
    """Send a one-way request; resumed with None once it was handed to the connection."""

    address: str
    command: Command


class Sleep(msgspec.Struct, frozen=True):
    """Wait; resumed with None."""

    seconds: float


class Instant(msgspec.Struct, frozen=True):
    """A reading of both clocks: `at_s` for durations, `wall_ms` for what others see."""

    at_s: float
    wall_ms: int


class Now(msgspec.Struct, frozen=True):
    """Read the clocks; resumed with an `Instant`."""


class Together(msgspec.Struct, frozen=True):
    """Run flows side by side, at most `at_once` of them; resumed when all have ended.

    Resumed with a list of their results, in order; an error stands for one that ended with it.
    """

    flows: tuple[Flow[Any], ...]
    at_once: int


FlowEffect: TypeAlias = Call | Notify | Sleep | Now | Together
Flow: TypeAlias = Generator[FlowEffect, Any, _T]


def call(address: str, command: Command, timeout_s: float) -> Flow[Command]:
    """Send a request and return its answer, whatever its code."""
    answer: Command = yield Call(address, command, timeout_s)
    return answer


def checked_call(address: str, command: Command, timeout_s: float) -> Flow[Command]:
    """Send a request and return its answer; an answer with an error code is raised."""
    answer = yield from call(address, command, timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(address, command, answer)
    return answer


def notify(address: str, command: Command) -> Flow[None]:
    """Send a request that nobody answers."""
    yield Notify(address, command)


def sleep(seconds: float) -> Flow[None]:
    """Wait for some time."""
    yield Sleep(seconds)


def now() -> Flow[Instant]:
    """Read the clocks."""
    instant: Instant = yield Now()
    return instant


def together(flows: Iterable[Flow[_T]], *, at_once: int = _AT_ONCE) -> Flow[list[_T | GimbalError]]:
    """Run flows side by side and return what each ended with, in order, errors included."""
    results: list[_T | GimbalError] = yield Together(tuple(flows), at_once)
    return results


def broker_error(address: str, request: Command, answer: Command) -> BrokerError:
    """The error for an answer with an error code, in words: who refused what, and why."""
    remark = (answer.remark or "").strip()
    # Servers put stack traces into remarks; the first line says what happened.
    first_line = remark.splitlines()[0] if remark else "no reason given"
    text = (
        f"{address} refused {_request_name(request.code)} "
        f"with code {answer.code} ({_response_name(answer.code)}): {first_line}"
    )
    kind: type[BrokerError] = BrokerError
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        kind = TopicNotFoundError
    elif is_denial(answer.code, remark):
        kind = AccessDeniedError
    return kind(text, code=answer.code, address=address, remark=remark)


def _request_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"


def _response_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return "unknown code"
