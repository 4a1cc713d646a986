"""Sending one message: pick a queue, call its broker, try another one, within one deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.errors import BrokerError, SendError, TransportError
from gimbalmq.flows.effects import Flow, broker_error, call, now
from gimbalmq.model.message import SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_send_response

__all__ = ["RETRY_CODES", "Attempt", "send"]

#: Refusals after which another broker may take the message, as Java's default set.
RETRY_CODES: Final = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
_STORED: Final = frozenset(status.value for status in SendStatus)


class Attempt(msgspec.Struct, frozen=True):
    """Where to send next: the queue, its broker's address, and the request for it."""

    queue: MessageQueue
    address: str
    request: Command


def send(
    next_attempt: Callable[[str | None], Attempt],
    *,
    message_id: str,
    attempts_max: int,
    timeout_s: float,
    retry_codes: frozenset[int] = RETRY_CODES,
) -> Flow[SendResult]:
    """Send until a broker has stored the message, the attempts are used up or time is over.

    `next_attempt` gets the broker that just failed (None at first) and says where to go.

    Raises:
        SendError: no broker took it; the text lists what was tried and why each failed.
    """
    started = yield from now()
    deadline = started.at_s + timeout_s
    tried: list[str] = []
    failed_broker: str | None = None
    remaining_s = timeout_s
    code: int | None = None
    for _ in range(attempts_max):
        attempt = next_attempt(failed_broker)
        failed_broker = attempt.queue.broker
        try:
            answer = yield from call(attempt.address, attempt.request, remaining_s)
            if answer.code in _STORED:
                return _result(attempt, answer, message_id)
            raise broker_error(attempt.address, attempt.request, answer)
        except (TransportError, BrokerError) as error:
            tried.append(f"{failed_broker}: {error}")
            code = error.code
            if isinstance(error, BrokerError) and error.code not in retry_codes:
                break
        remaining_s = deadline - (yield from now()).at_s
        if remaining_s <= 0:
            tried.append(f"no time left of {timeout_s:g} s")
            break
    raise _send_error(attempt.queue.topic, tried, code)


def _result(attempt: Attempt, answer: Command, message_id: str) -> SendResult:
    stored = parse_send_response(answer)
    queue = attempt.queue
    if stored.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker, stored.queue_id)
    return SendResult(
        status=SendStatus(answer.code),
        message_id=message_id,
        offset_message_id=stored.offset_message_ids[0],
        queue=queue,
        queue_offset=stored.queue_offset,
    )


def _send_error(topic: str, tried: list[str], code: int | None) -> SendError:
    return SendError(
        f"message for topic '{topic}' was not sent. Tried: " + "; then ".join(tried),
        attempts=tuple(tried),
        code=code,
    )
