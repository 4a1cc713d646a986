"""Where a producer's messages may go: routes of its topics, turns of its threads, broker health.

Asks name servers once per topic; from then on the instance keeps the route fresh. Every thread
walks the queues on its own, from a random start.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from typing import Final

from gimbalmq.client.producer_stats import SendMeter
from gimbalmq.client.shared import InstanceHolder
from gimbalmq.core.fault import BrokerHealth, Faults, FaultTolerance
from gimbalmq.core.publish import PublishInfo
from gimbalmq.core.selection import RoundRobin
from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    GimbalError,
    StateError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.flows.effects import Flow, call, together
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.flows.route import fetch_publish_route
from gimbalmq.flows.send import Attempt, AttemptReport
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.driver import Timer
from gimbalmq.wire.codes import version_name, version_ordinal
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import max_offset_request

__all__ = ["Publishing"]

#: After a failure the route is asked for again, at most this often for one topic.
_REFRESH_EVERY_S = 1.0
#: Java's detector looks this often which brokers are due.
_DETECT_EVERY_S = 3.0
#: The first release that knows `TIMER_DELIVER_MS`.
_TIMERS_FROM: Final = version_ordinal("5.0.0")


class Publishing:
    """The targets of one running producer."""

    def __init__(
        self, shared: InstanceHolder, settings: SendSettings, tolerance: FaultTolerance | None
    ) -> None:
        self._shared = shared
        self._route = shared.instance.routes.route
        self._settings = settings
        self._infos: dict[str, PublishInfo] = {}
        #: Addresses of brokers that keep messages back until their time.
        self._with_timers: set[str] = set()
        self._threads = threading.local()
        self._refreshed_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._faults: Faults | None = None
        #: Set while every answer matters, not only failures.
        self.report_stored: AttemptReport | None = None
        self.meter: SendMeter | None = None
        self._detecting: Timer | None = None
        if tolerance is not None:
            self._faults = Faults(tolerance, fallback_start=secrets.randbits(32))
            self.report_stored = self.report

    def measure(self, meter: SendMeter) -> None:
        """Measure every attempt from now on."""
        self.meter = meter
        self.report_stored = self.report

    # ---- routes ------------------------------------------------------------------------------

    def known(self, topic: str) -> PublishInfo | None:
        """The publish list of a topic, if it can be had without waiting."""
        known, latest = self._infos.get(topic), self._route(topic)
        if known is not None and (latest is None or known.route is latest):
            return known
        info = None if latest is None else PublishInfo.of(latest)
        if info is None or not info.queues:
            return None
        if known is None:
            # Fetched for another, a consumer perhaps, that may leave: from now on for us as well.
            instance, template = self._shared.instance, self._settings.template
            self._shared.post(lambda: instance.publish(topic, template))
        self._infos[topic] = info
        return info

    def known_last(self, topic: str) -> PublishInfo:
        """The publish list of a topic that was found before: of now, or else the last that was."""
        return self.known(topic) or self._infos[topic]

    def find(self, topic: str, timeout_s: float = 3.0) -> Flow[PublishInfo]:
        """Ask name servers for the publish list of a topic that is not known yet.

        Raises:
            TopicNotFoundError: there is no queue to send to.
        """
        shared = self._shared
        template = self._settings.template
        route = yield from fetch_publish_route(
            shared.instance.nameservers, topic, template=template, timeout_s=timeout_s
        )
        shared.post(lambda: shared.instance.publish_to(route, template))
        info = PublishInfo.of(route)
        if not info.queues:
            raise TopicNotFoundError(
                f"topic '{topic}' has no queue that can be written to: no broker of its route has "
                "both a master and write permission",
                code=17,
            )
        self._infos[topic] = info
        return info

    def check_timers(self, info: PublishInfo, timeout_s: float) -> Flow[None]:
        """Ask the brokers of a topic, once each, whether they know messages with a time.

        Those of 4.x would deliver such a message at once, without a word. Every answer says which
        version it is of; a broker that gives none is left to the send.

        Raises:
            ConfigurationError: one of them is too old.
        """
        asked = {
            address: queue
            for queue in info.queues
            if (address := info.masters.get(queue.broker, "")) and address not in self._with_timers
        }
        if not asked:
            return
        # Half of the time, and all at once: the other half is for the send.
        answers = yield from together(
            call(address, max_offset_request(queue), timeout_s / 2)
            for address, queue in asked.items()
        )
        for (address, queue), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, TransportError):
                continue
            if isinstance(answer, GimbalError):
                raise answer
            if answer.version < _TIMERS_FROM:
                raise ConfigurationError(
                    f"broker '{queue.broker}' ({address}) is RocketMQ "
                    f"{version_name(answer.version)}, which would deliver a message with "
                    "deliver_at at once: use delay_level, or a broker of 5.0 or later"
                )
            self._with_timers.add(address)

    def _refresh_soon(self, topic: str, now_s: float) -> None:
        """Ask for a route again: a broker that just died is gone from it at once."""
        if now_s - self._refreshed_s.get(topic, -_REFRESH_EVERY_S) >= _REFRESH_EVERY_S:
            self._refreshed_s[topic] = now_s
            with contextlib.suppress(StateError):  # it may have failed because the client stopped
                self._shared.post(lambda: self._shared.instance.refresh_route(topic))

    # ---- choice ------------------------------------------------------------------------------

    def next_queue(self, info: PublishInfo, failed_broker: str | None) -> MessageQueue:
        """Whose turn it is on this thread; after a failure, elsewhere if possible."""
        ring, faults = self.turns(), self._faults
        if faults is None:
            return ring.next(info.queues, avoid_broker=failed_broker)
        if failed_broker is not None and faults.tolerance.rules == "5.x":
            ring.restart(secrets.randbits(32))
        with self._lock:
            return faults.select(
                ring,
                info.queues,
                info.write_queues,
                time.monotonic(),
                failed_broker=failed_broker,
            )

    def turns(self) -> RoundRobin:
        """Whose turn it is on this thread, while brokers are not judged by their faults."""
        try:
            ring: RoundRobin = self._threads.ring
        except AttributeError:
            ring = self._threads.ring = RoundRobin(secrets.randbits(32))
        return ring

    # ---- health ------------------------------------------------------------------------------

    def report(
        self, attempt: Attempt, outcome: Command | GimbalError, latency_s: float, now_s: float
    ) -> None:
        """How an attempt went (an `AttemptReport`)."""
        if self.meter is not None:
            self.meter.attempted(attempt.queue.broker, outcome, latency_s)
        if isinstance(outcome, GimbalError) and not isinstance(outcome, BrokerError):
            self._refresh_soon(attempt.queue.topic, now_s)
        faults = self._faults
        if faults is None:
            return
        # A broker that refuses is taken for unreachable until it takes a message or, with the
        # detector, answers a question. Without the detector nobody would find out that a broken
        # connection works again, so that one is not.
        refused = isinstance(outcome, BrokerError)
        failed = isinstance(outcome, GimbalError)
        reachable = not refused and not (failed and faults.tolerance.detector)
        with self._lock:
            faults.report(
                attempt.queue.broker, latency_s, now_s, failed=failed, reachable=reachable
            )

    def health(self) -> dict[str, BrokerHealth]:
        """What fault tolerance knows of each broker; empty while it is off."""
        if self._faults is None:
            return {}
        with self._lock:
            return self._faults.health(time.monotonic())

    # ---- detector, on the engine thread --------------------------------------------------------

    def start_detector(self) -> None:
        """Ask brokers that were put aside, if that is wanted."""
        if self._faults is not None and self._faults.tolerance.detector:
            self._detecting = self._shared.instance.driver.call_later(_DETECT_EVERY_S, self._detect)

    def stop_detector(self) -> None:
        """Ask no more."""
        if self._detecting is not None:
            self._detecting.cancel()

    def _detect(self) -> None:
        assert self._faults is not None
        # First the next time: one that fails must not be the last.
        self._detecting = self._shared.instance.driver.call_later(_DETECT_EVERY_S, self._detect)
        with self._lock:
            due = self._faults.due_checks(time.monotonic())
        for broker in due:
            self._probe(broker)

    def _probe(self, broker: str) -> None:
        assert self._faults is not None
        instance, lock, faults = self._shared.instance, self._lock, self._faults
        queue = next(
            (
                queue
                for info in tuple(self._infos.values())
                for queue in info.queues
                if queue.broker == broker and queue.queue_id == 0
            ),
            None,
        )
        address = None if queue is None else instance.routes.master(queue)
        if queue is None or address is None:
            with lock:
                faults.forget(broker)
            return

        def answered(answer: Command | GimbalError) -> None:
            # Whatever it says, it is there.
            if isinstance(answer, Command):
                with lock:
                    faults.answered(broker)

        instance.driver.call(
            address, max_offset_request(queue), faults.tolerance.detect_timeout_s, answered
        )
