"""Sending one message: pick a queue, call its broker, try another one, within one deadline.

`Sending` decides what follows from each answer. It is driven by whoever does the calls: the flow
`send` here, the calling thread of a sync send, or the engine thread of a pipelined one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gimbalmq.errors import (
    AccessDeniedError,
    BrokerError,
    GimbalError,
    ProtocolError,
    SendError,
    TransportError,
)
from gimbalmq.flows.effects import Flow, broker_error, call, now
from gimbalmq.model.message import SendResult, SendStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_send_response
from gimbalmq.wire.stored import StoredPlace

__all__ = [
    "RETRY_CODES",
    "Attempt",
    "AttemptReport",
    "SendPolicy",
    "Sending",
    "carry_out",
    "placed_result",
    "send",
    "stored_result",
]

#: Refusals after which another broker may take the message, as Java's default set.
RETRY_CODES: Final = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
#: Reading a member off its enumeration costs half as much as making the result that it is for.
_SEND_OK: Final = SendStatus.SEND_OK
_STATUS: Final = {status.value: status for status in SendStatus}


class Attempt(msgspec.Struct, frozen=True):
    """Where to send next: the queue, its broker's address, and the request for it.

    An empty address says that the broker has no master now; the attempt then counts as failed.
    """

    #: As brokers name it.
    queue: MessageQueue
    address: str
    request: Command


class AttemptReport(Protocol):
    """Told how each attempt went, for fault tolerance and tracing."""

    def __call__(
        self, attempt: Attempt, outcome: Command | GimbalError, latency_s: float, now_s: float
    ) -> None:
        """`outcome` is the answer of a broker that stored the message, else the error."""


class SendPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When to try again, with Java's defaults for a sync send."""

    attempts_max: int = 3
    retry_codes: frozenset[int] = RETRY_CODES
    #: Whether "stored, but not yet on disk or on a slave" is a reason to try another broker.
    retry_not_store_ok: bool = False
    #: Limit of one attempt, except the last one.
    request_timeout_s: float | None = None


class Sending:
    """One message (or batch) on its way.

    Call `start`, carry the attempt out, and hand its outcome to `answered`, until that returns a
    result instead of another attempt. `attempt_timeout_s` is for the attempt returned last.
    `report` is told of failed attempts, `report_stored` of the others. `topic` is what the user
    calls the topic, if brokers call it otherwise.
    """

    __slots__ = (
        "_attempt",
        "_attempted_s",
        "_attempts_left",
        "_code",
        "_deadline_s",
        "_next_attempt",
        "_not_store_ok",
        "_policy",
        "_report",
        "_report_stored",
        "_timeout_s",
        "_topic",
        "_tried",
        "attempt_timeout_s",
        "message_id",
    )

    def __init__(
        self,
        next_attempt: Callable[[str | None], Attempt],
        message_id: str,
        policy: SendPolicy,
        timeout_s: float,
        report: AttemptReport | None = None,
        report_stored: AttemptReport | None = None,
        topic: str | None = None,
    ) -> None:
        self.message_id = message_id
        self._topic = topic
        self.attempt_timeout_s = timeout_s
        self._next_attempt = next_attempt
        self._policy = policy
        self._timeout_s = timeout_s
        self._report = report
        self._report_stored = report_stored
        self._attempts_left = policy.attempts_max
        self._tried: tuple[str, ...] = ()
        self._not_store_ok: SendResult | None = None
        self._code: int | None = None

    def start(self, now_s: float, since_s: float | None = None) -> Attempt:
        """The first attempt; the time limit counts from `since_s`, if that is earlier.

        Raises:
            SendError: no broker that could be chosen has an address, or no time is left.
        """
        self._deadline_s = (now_s if since_s is None else since_s) + self._timeout_s
        if now_s >= self._deadline_s:
            self._attempt = self._next_attempt(None)
            self._tried = (f"no time left of {self._timeout_s:g} s when its route was found",)
            raise self._error()
        return self._next(None, now_s)

    def adopt(self, attempt: Attempt, started_s: float) -> None:
        """Take an attempt over that was carried out before, as the first one."""
        self._deadline_s = started_s + self._timeout_s
        self._attempts_left -= 1
        self._attempt = attempt
        self._attempted_s = started_s

    def answered(self, outcome: Command | GimbalError, now_s: float) -> SendResult | Attempt:
        """What follows from the answer to the last attempt, or from its failure.

        Raises:
            SendError: no broker took it; the text lists what was tried and why each failed.
            AccessDeniedError: a broker refused the keys; no other was tried after it.
            ProtocolError: the broker's answer cannot be read.
        """
        attempt = self._attempt
        if isinstance(outcome, GimbalError):
            return self._failed(outcome, now_s)
        status = _STATUS.get(outcome.code)
        if status is None:
            return self._failed(broker_error(attempt.address, attempt.request, outcome), now_s)
        if self._report_stored is not None:
            self._report_stored(attempt, outcome, now_s - self._attempted_s, now_s)
        result = stored_result(self._named(attempt.queue), outcome, status, self.message_id)
        if status is not SendStatus.SEND_OK and self._policy.retry_not_store_ok:
            self._not_store_ok = self._not_store_ok or result
            self._tried += (f"{attempt.queue.broker}: stored with {status.name}",)
            return self._retry(now_s)
        return result

    def _failed(self, error: GimbalError, now_s: float) -> SendResult | Attempt:
        if self._report is not None:
            self._report(self._attempt, error, now_s - self._attempted_s, now_s)
        broker = self._attempt.queue.broker
        self._tried += (f"{broker}: {error}",)
        self._code = error.code
        if isinstance(error, AccessDeniedError):
            # The keys are the same everywhere: another broker would only say it again.
            return self._give_up(error)
        if isinstance(error, BrokerError):
            if error.code not in self._policy.retry_codes:
                return self._give_up()
        elif not isinstance(error, TransportError | ProtocolError):
            raise error
        return self._retry(now_s)

    def _retry(self, now_s: float) -> SendResult | Attempt:
        if not self._attempts_left:
            return self._give_up()
        if now_s >= self._deadline_s:
            self._tried += (f"no time left of {self._timeout_s:g} s",)
            return self._give_up()
        try:
            return self._next(self._attempt.queue.broker, now_s)
        except SendError:
            return self._give_up()

    def _next(self, failed_broker: str | None, now_s: float) -> Attempt:
        while self._attempts_left:
            self._attempts_left -= 1
            attempt = self._next_attempt(failed_broker)
            failed_broker = attempt.queue.broker
            self._attempt = attempt
            if attempt.address:
                self._attempted_s = now_s
                timeout_s = self._deadline_s - now_s
                limit_s = self._policy.request_timeout_s
                if limit_s is not None and self._attempts_left and limit_s < timeout_s:
                    timeout_s = limit_s
                self.attempt_timeout_s = timeout_s
                return attempt
            topic = self._named(attempt.queue).topic
            self._tried += (f"{failed_broker}: has no master in the route of topic '{topic}'",)
        raise self._error()

    def _named(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the user names it."""
        if self._topic is None:
            return queue
        return MessageQueue(self._topic, queue.broker, queue.queue_id)

    def _give_up(self, denied: AccessDeniedError | None = None) -> SendResult:
        if self._not_store_ok is not None:
            return self._not_store_ok
        if denied is not None:
            raise AccessDeniedError(
                self._words(),
                code=denied.code or 0,
                address=denied.address,
                remark=denied.remark,
            ) from denied
        raise self._error()

    def _error(self) -> SendError:
        return SendError(self._words(), attempts=self._tried, code=self._code)

    def _words(self) -> str:
        topic = self._named(self._attempt.queue).topic
        return f"message for topic '{topic}' was not sent. Tried: " + "; then ".join(self._tried)


def send(
    next_attempt: Callable[[str | None], Attempt],
    *,
    message_id: str,
    attempts_max: int,
    timeout_s: float,
    retry_codes: frozenset[int] = RETRY_CODES,
    retry_not_store_ok: bool = False,
) -> Flow[SendResult]:
    """Send until a broker has stored the message, the attempts are used up or time is over.

    `next_attempt` gets the broker that just failed (None at first) and says where to go.

    Raises:
        SendError: no broker took it; the text lists what was tried and why each failed.
    """
    policy = SendPolicy(
        attempts_max=attempts_max, retry_codes=retry_codes, retry_not_store_ok=retry_not_store_ok
    )
    return (yield from carry_out(Sending(next_attempt, message_id, policy, timeout_s)))


def carry_out(sending: Sending, since_s: float | None = None) -> Flow[SendResult]:
    """Carry out all attempts of a sending, whose time limit counts from `since_s`, or from now."""
    step: SendResult | Attempt = sending.start((yield from now()).at_s, since_s)
    while isinstance(step, Attempt):
        outcome: Command | GimbalError
        try:
            outcome = yield from call(step.address, step.request, sending.attempt_timeout_s)
        except (TransportError, ProtocolError) as error:
            outcome = error
        step = sending.answered(outcome, (yield from now()).at_s)
    return step


def placed_result(queue: MessageQueue, place: StoredPlace, message_id: str) -> SendResult:
    """The result of an answer that says stored and nothing more."""
    if place.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker, place.queue_id)
    return SendResult(_SEND_OK, message_id, place.msg_id, queue, place.queue_offset)


def stored_result(
    queue: MessageQueue, answer: Command, status: SendStatus, message_id: str
) -> SendResult:
    """The result of an answer with one of the codes that mean stored.

    Raises:
        ProtocolError: a field that every broker sends is missing.
    """
    fields = answer.fields
    try:
        # Ids of a batch are joined by commas, and stay so, as in Java.
        offset_id, offset = fields["msgId"], int(fields["queueOffset"])
        if fields["queueId"] != str(queue.queue_id):
            queue = MessageQueue(queue.topic, queue.broker, int(fields["queueId"]))
    except (KeyError, ValueError):
        parse_send_response(answer)  # says which field is wrong
        raise
    return SendResult(status, message_id, offset_id, queue, offset)
