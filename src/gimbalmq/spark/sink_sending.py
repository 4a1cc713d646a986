"""Sending the parcels of a task: pipelined, bounded, tried again, and all of them acknowledged.

The producer below is the client's own, with one more way to send: what is encoded already. It is
kept for the next task of the worker process, as its connections and routes are.
"""

from __future__ import annotations

import os
import time
from collections import deque
from concurrent.futures import Future
from typing import Final

from gimbalmq.client.access import reach_options
from gimbalmq.client.pipeline import Flight
from gimbalmq.client.producer import Producer
from gimbalmq.errors import GimbalError, SendError, TopicNotFoundError
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.flows.send import Attempt, Sending, SendPolicy
from gimbalmq.model.message import SendResult
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.sink_parcels import Parcel
from gimbalmq.spark.write_options import Selector, WriteOptions
from gimbalmq.wire.headers import send_batch_request, send_request

__all__ = ["Courier", "RowProducer", "discard_producer", "producer_for"]

#: For one send, all its attempts together.
_SEND_TIMEOUT_S: Final = 10.0
#: How long a task waits for brokers that are gone or busy before it fails.
_PATIENCE_S: Final = 30.0
_PAUSE_FIRST_S: Final = 0.2
_PAUSE_MAX_S: Final = 3.0
#: Refusals that pass by themselves: busy, not available, flow control, about to stop.
_PASSING_CODES: Final = frozenset({2, 14, 215, 1500})
#: One send may wait for room as long as those before it may take.
_ROOM_TIMEOUT_S: Final = _SEND_TIMEOUT_S + _PATIENCE_S


class RowProducer(Producer):
    """A producer that also sends parcels."""

    def new_ids(self, count: int) -> list[str]:
        """New unique message ids, up to 65,536 at a time."""
        sender = self._sender or self._not_running()
        return sender.new_ids(count, time.time_ns() // 1_000_000)

    def submit(self, parcel: Parcel) -> Future[SendResult]:
        """Send a parcel, waiting only for room; retries go to another broker.

        A parcel with a queue stays at that queue.
        """
        sender = self._sender or self._not_running()
        publishing, limits = sender.publishing, SendSettings()
        info = sender.info(parcel.topic, _SEND_TIMEOUT_S)
        now_ms = time.time_ns() // 1_000_000

        def next_attempt(failed_broker: str | None) -> Attempt:
            target = parcel.queue or publishing.next_queue(info, failed_broker)
            address = info.masters.get(target.broker, "")
            if parcel.batch:
                request = send_batch_request(
                    group=sender.wire_group,
                    queue=target,
                    body=parcel.body,
                    properties=parcel.properties,
                    born_timestamp_ms=now_ms,
                    default_topic=limits.create_topic_key,
                    default_topic_queues=limits.default_topic_queue_nums,
                )
            else:
                request = send_request(
                    group=sender.wire_group,
                    queue=target,
                    body=parcel.body,
                    properties=parcel.properties,
                    born_timestamp_ms=now_ms,
                    sys_flag=parcel.sys_flag,
                    default_topic=limits.create_topic_key,
                    default_topic_queues=limits.default_topic_queue_nums,
                )
            return Attempt(target, address, request)

        sending = Sending(
            next_attempt,
            "",
            SendPolicy(),
            _SEND_TIMEOUT_S,
            publishing.report,
            publishing.report_stored,
        )
        flight = Flight(sender.pipeline, sending, len(parcel.body), len(parcel.rows))
        return sender.pipeline.submit(flight, _ROOM_TIMEOUT_S)


class Courier:
    """Sends the parcels of one task; `where` names the task in errors."""

    def __init__(
        self,
        producer: RowProducer,
        where: str,
        *,
        patience_s: float = _PATIENCE_S,
        rows_per_s: int | None = None,
    ) -> None:
        self._producer = producer
        self._where = where
        self._patience_s = patience_s
        self._under_way: deque[tuple[Parcel, Future[SendResult]]] = deque()
        #: The parcel under way to a queue that was chosen by key: the next one waits for it.
        self._by_queue: dict[MessageQueue, tuple[Parcel, Future[SendResult]]] = {}
        self._rows_per_s = rows_per_s
        self._started_s = time.monotonic()
        self._rows_sent = 0
        self.rows_acknowledged = 0

    def send(self, parcel: Parcel) -> None:
        """Send a parcel; returns when it is on its way.

        Raises:
            GimbalError: this one or one before it could not be written.
        """
        self._keep_rate(len(parcel.rows))
        under_way = self._under_way
        while under_way and under_way[0][1].done():
            self._settle(*under_way.popleft())
        if parcel.queue is None:
            under_way.append((parcel, self._submit(parcel)))
            return
        before = self._by_queue.pop(parcel.queue, None)
        if before is not None:
            self._settle(*before)
        self._by_queue[parcel.queue] = (parcel, self._submit(parcel))

    def finish(self) -> None:
        """Wait until every parcel is acknowledged."""
        while self._under_way:
            self._settle(*self._under_way.popleft())
        while self._by_queue:
            self._settle(*self._by_queue.popitem()[1])

    def _keep_rate(self, rows: int) -> None:
        """Wait while more rows were sent than the rate allows so far."""
        if self._rows_per_s is None:
            return
        due_s = self._started_s + self._rows_sent / self._rows_per_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        self._rows_sent += rows

    def _submit(self, parcel: Parcel) -> Future[SendResult]:
        try:
            return self._producer.submit(parcel)
        except TopicNotFoundError:
            raise
        except GimbalError as error:
            failed: Future[SendResult] = Future()
            failed.set_exception(error)
            return failed

    def _settle(self, parcel: Parcel, future: Future[SendResult]) -> None:
        deadline_s, pause_s = None, _PAUSE_FIRST_S
        while True:
            try:
                future.result()
            except GimbalError as error:
                now_s = time.monotonic()
                deadline_s = now_s + self._patience_s if deadline_s is None else deadline_s
                if not _passes(error):
                    self._refused(parcel, error)
                    return
                if now_s >= deadline_s:
                    raise self._not_written(parcel, error) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                future = self._submit(parcel)
            else:
                self.rows_acknowledged += len(parcel.rows)
                return

    def _refused(self, parcel: Parcel, error: GimbalError) -> None:
        """Find the row of a batch that a broker does not want, by sending each by itself."""
        if not parcel.batch or len(parcel.rows) == 1:
            raise self._not_written(parcel, error) from error
        for one in parcel.split():
            self._settle(one, self._submit(one))

    def _not_written(self, parcel: Parcel, error: GimbalError) -> SendError:
        return SendError(
            f"{parcel.describe()} of {self._where} not written to topic '{parcel.topic}': {error}",
            attempts=getattr(error, "attempts", ()),
            code=error.code,
        )


def _passes(error: GimbalError) -> bool:
    """Whether trying again later may help."""
    return error.retryable and (error.code is None or error.code in _PASSING_CODES)


#: The producer of this worker process, by process id and options.
_producers: Final[dict[tuple[int, WriteOptions], RowProducer]] = {}


def producer_for(options: WriteOptions) -> RowProducer:
    """A running producer, kept from task to task."""
    key = os.getpid(), options
    producer = _producers.get(key)
    if producer is None:
        producer = RowProducer(
            # Names are those of the wire here, of topics as well.
            options.namespace.wire(options.group),
            **reach_options(options.reach),
            nameserver=";".join(options.nameservers),
            timeout_s=_SEND_TIMEOUT_S,
            fault_tolerance=options.selector is Selector.FAULT_TOLERANT,
            back_pressure_for_async_send_num=options.in_flight_max,
        ).start()
        _producers[key] = producer
    return producer


def discard_producer(options: WriteOptions) -> None:
    """Stop the producer after a failure: what it still has under way is nobody's."""
    producer = _producers.pop((os.getpid(), options), None)
    if producer is not None:
        producer.stop()
