"""Message traces of a producer: who sent what where, and how long it took, in Java's format.

Records gather and leave as messages of the trace topic, on the engine thread, under a group of
their own. Tracing never delays a send and never fails one: what does not fit is dropped and
counted.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from gimbalmq.client.futures import Underway
from gimbalmq.client.shared import InstanceHolder
from gimbalmq.errors import GimbalError, StateError
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.flows.route import fetch_publish_route
from gimbalmq.flows.send import Attempt
from gimbalmq.flows.transaction import HalfMessage, Outcome
from gimbalmq.model.message import Message
from gimbalmq.model.route import TopicRoute
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_send_response
from gimbalmq.wire.record import ReceivedMessage
from gimbalmq.wire.trace import (
    TracedMessage,
    TraceMessageType,
    end_transaction_record,
    publish_record,
)

__all__ = ["TraceLog"]

_log = logging.getLogger("gimbalmq.producer")

# Java's numbers.
_BATCH_RECORDS: Final = 100
_BATCH_CHARS: Final = 128_000
_HELD_RECORDS_MAX: Final = 2048
_HOLD_S: Final = 0.5

_STATES: Final = {
    Outcome.COMMIT: "COMMIT_MESSAGE",
    Outcome.ROLLBACK: "ROLLBACK_MESSAGE",
    Outcome.UNKNOWN: "UNKNOW",
}

#: Of a message's properties, which have 32,767 bytes, some are not keys.
_KEYS_BYTES_MAX: Final = 32_000

#: The text of a record, and the keys by which it is found.
_Record: TypeAlias = tuple[str, tuple[str, ...]]

#: Sends a trace message without waiting; its topic's route is known.
SendTrace: TypeAlias = Callable[[Message], Underway]


class TraceLog:
    """The trace records of one running producer."""

    def __init__(
        self,
        shared: InstanceHolder,
        group: str,
        topic: str,
        settings: SendSettings,
        send: SendTrace,
    ) -> None:
        self._shared = shared
        self._group = group
        self._topic = topic
        self._settings = settings
        self._send = send
        self._lock = threading.Lock()
        self._records: list[_Record] = []
        self._scheduled = False
        #: Records that were not written, because too many waited or the broker did not take them.
        self.dropped = 0

    # ---- any thread --------------------------------------------------------------------------

    def sent(
        self,
        message: Message,
        message_id: str,
        body_bytes: int,
        kind: TraceMessageType,
        attempt: Attempt,
        outcome: Command | GimbalError,
        latency_s: float,
    ) -> None:
        """An attempt to send ended; only stored messages are traced, as in Java."""
        if isinstance(outcome, GimbalError):
            return
        stored = parse_send_response(outcome)
        if not stored.trace_on:
            return
        cost_ms = int(latency_s * 1000)
        record = publish_record(
            _traced(message, message_id, kind),
            sent_ms=time.time_ns() // 1_000_000 - cost_ms,
            region=stored.region,
            group=self._group,
            store_host=attempt.address,
            body_bytes=body_bytes,
            cost_ms=cost_ms,
            offset_message_id=",".join(stored.offset_message_ids),
            success=outcome.code == 0,
        )
        self._add(record, (*message_id.split(","), *message.keys))

    def ended(
        self,
        address: str,
        half: HalfMessage,
        outcome: Outcome,
        message: Message | ReceivedMessage,
    ) -> None:
        """The transaction of a message was ended; the message is as the user knows it."""
        record = end_transaction_record(
            _traced(message, half.message_id, TraceMessageType.TRANSACTION_COMMIT),
            ended_ms=time.time_ns() // 1_000_000,
            region="DefaultRegion",
            group=self._group,
            store_host=address,
            transaction_id=half.transaction_id,
            state=_STATES[outcome],
            from_check=half.from_check,
        )
        self._add(record, (half.message_id, *message.keys))

    def flush(self, then: Callable[[], None]) -> None:
        """Hand what has gathered over to be sent, then say so: the route may be fetched first."""
        self._shared.post(lambda: self._write(then))

    def note(self, record: str, keys: tuple[str, ...]) -> None:
        """Write a record that was made elsewhere, to be found by these keys."""
        self._add(record, keys)

    def _add(self, record: str, keys: tuple[str, ...]) -> None:
        with self._lock:
            if len(self._records) >= _HELD_RECORDS_MAX:
                self.dropped += 1
                return
            self._records.append((record, keys))
            count = len(self._records)
            schedule = not self._scheduled
            self._scheduled = True
        try:
            if count == _BATCH_RECORDS:
                self._shared.post(self._write)
            elif schedule:
                self._shared.post(self._write_later)
        except StateError as error:  # the client was stopped, but the message was sent
            self._drop(self._take_all(), error)

    # ---- engine thread -----------------------------------------------------------------------

    def _write_later(self) -> None:
        self._shared.instance.driver.call_later(_HOLD_S, self._write)

    def _write(self, then: Callable[[], None] = lambda: None) -> None:
        instance = self._shared.instance
        if instance.routes.route(self._topic) is not None:
            self._write_to_route()
            then()
            return
        flow = fetch_publish_route(
            instance.nameservers, self._topic, template=self._settings.template
        )
        instance.driver.spawn(flow, functools.partial(self._routed, then))

    def _routed(self, then: Callable[[], None], result: TopicRoute | GimbalError) -> None:
        if isinstance(result, GimbalError):
            self._drop(self._take_all(), result)
        else:
            self._shared.instance.publish_to(result, self._settings.template)
            self._write_to_route()
        then()

    def _take_all(self) -> list[_Record]:
        with self._lock:
            self._scheduled = False
            records, self._records = self._records, []
        return records

    def _write_to_route(self) -> None:
        records = self._take_all()
        while records:
            text, keys, used = _together(records)
            batch, records = records[:used], records[used:]
            try:
                future = self._send(Message(self._topic, text.encode(), keys=keys))
            except GimbalError as error:
                self._drop(batch, error)
            else:
                future.add_done_callback(functools.partial(self._written, batch))

    def _written(self, batch: list[_Record], future: Any) -> None:
        if future.cancelled():
            self._drop(batch, StateError("the producer was stopped"))
            return
        error = future.exception()
        if error is not None:
            self._drop(batch, error)

    def _drop(self, batch: list[_Record], error: BaseException) -> None:
        with self._lock:
            self.dropped += len(batch)
        _log.warning("%d trace records were not written: %s", len(batch), error)


def _traced(
    message: Message | ReceivedMessage, message_id: str, kind: TraceMessageType
) -> TracedMessage:
    return TracedMessage(
        message.topic, message_id, message.tags or "", " ".join(message.keys), kind
    )


def _together(records: Sequence[_Record]) -> tuple[str, list[str], int]:
    """What the next trace message says, its keys, and of how many records that is.

    The record of a large batch may have more keys than fit; it is found by those that do.
    """
    text, keys, keys_bytes, used = "", dict[str, None](), 0, 0
    for record, more in records[:_BATCH_RECORDS]:
        fresh = {key: len(key.encode()) + 1 for key in more if key not in keys}
        too_many = keys_bytes + sum(fresh.values()) > _KEYS_BYTES_MAX
        if used and (too_many or len(text) + len(record) > _BATCH_CHARS):
            break
        text += record
        used += 1
        for key, size in fresh.items():
            if keys_bytes + size <= _KEYS_BYTES_MAX:
                keys[key] = None
                keys_bytes += size
    return text, list(keys), used
