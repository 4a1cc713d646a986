"""Message traces of a consumer: who got what, when, and what came of it, in Java's format.

A pair of records for each message, joined by a request id of the call: SubBefore when a listener
gets it, SubAfter when the listener is done. They leave as the producer's do, and as there tracing
never fails a listener.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from gimbalmq.client.outbound import Outbound, SenderSettings
from gimbalmq.client.sender import Sender
from gimbalmq.client.shared import SharedInstance
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.flows.send import SendPolicy
from gimbalmq.model.verdict import RetryLater, Suspend
from gimbalmq.runtime.listening import Listener
from gimbalmq.wire.trace import ConsumeOutcome, consumed_record, consuming_record

__all__ = ["ConsumerTrace", "TraceNotes", "trace_settings"]

_REGION = "DefaultRegion"
_IN_FLIGHT_MAX = 1024
_IN_FLIGHT_BYTES_MAX = 16 << 20


def trace_settings(group: str, topic: str) -> SenderSettings:
    """How a consumer's traces are sent."""
    policy = SendPolicy(attempts_max=3)
    return SenderSettings(
        group=group,
        namespace=None,
        timeout_s=5.0,
        limits=SendSettings(),
        sync_policy=policy,
        async_policy=policy,
        tolerance=None,
        in_flight_max=_IN_FLIGHT_MAX,
        in_flight_bytes_max=_IN_FLIGHT_BYTES_MAX,
        batching=None,
        trace_topic=topic,
    )


class TraceNotes:
    """The trace records of what a listener does, whoever sends them."""

    def __init__(self, outbound: Outbound, group: str) -> None:
        self._outbound = outbound
        self._group = group

    @contextlib.contextmanager
    def during(self, messages: Any) -> Iterator[None]:
        """Note the begin of a call, and its end."""
        batch = [
            one
            for one in (messages if isinstance(messages, list) else [messages])
            if one.property_value("TRACE_ON") != "false"
        ]
        started_ms = time.time_ns() // 1_000_000
        request_id = self._outbound.new_id(started_ms)
        self._before(batch, request_id, started_ms)
        try:
            yield
        except BaseException as error:  # also a cancellation
            asked = isinstance(error, RetryLater | Suspend)
            outcome = ConsumeOutcome.FAILED if asked else ConsumeOutcome.EXCEPTION
            self._after(batch, request_id, started_ms, outcome)
            raise
        self._after(batch, request_id, started_ms, ConsumeOutcome.SUCCESS)

    def _before(self, batch: list[Any], request_id: str, started_ms: int) -> None:
        for message in batch:
            record = consuming_record(
                message.message_id,
                " ".join(message.keys),
                started_ms=started_ms,
                region=message.property_value("MSG_REGION") or _REGION,
                group=self._group,
                request_id=request_id,
                reconsume_times=message.reconsume_times,
            )
            self._note(record, message)

    def _after(
        self, batch: list[Any], request_id: str, started_ms: int, outcome: ConsumeOutcome
    ) -> None:
        ended_ms = time.time_ns() // 1_000_000
        for message in batch:
            record = consumed_record(
                message.message_id,
                " ".join(message.keys),
                ended_ms=ended_ms,
                group=self._group,
                request_id=request_id,
                # As Java shares the time of a call out over its messages.
                cost_ms=(ended_ms - started_ms) // len(batch),
                outcome=outcome,
            )
            self._note(record, message)

    def _note(self, record: str, message: Any) -> None:
        assert self._outbound.trace is not None
        self._outbound.trace.note(record, (message.message_id, *message.keys))


class ConsumerTrace(TraceNotes):
    """The traces of one running consumer."""

    def __init__(self, shared: SharedInstance, group: str, topic: str) -> None:
        self._sender = Sender(shared, trace_settings(group, topic))
        super().__init__(self._sender, group)

    def around(self, listener: Listener) -> Listener:
        """The listener with its traces."""

        def call(messages: Any) -> object:
            with self.during(messages):
                return listener(messages)

        return call

    def stop(self, timeout_s: float) -> None:
        """Send what has gathered, as far as the time suffices."""
        assert self._sender.trace is not None
        handed_over = threading.Event()
        self._sender.trace.flush(handed_over.set)
        handed_over.wait(timeout_s)
        self._sender.pipeline.wait_empty(timeout_s)
        self._sender.pipeline.close()
