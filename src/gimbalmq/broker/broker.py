"""The broker as a machine: requests in, what is to be sent out; no socket, no clock.

Composes the processors of the request families over one shared state. Whatever a call stores is
shown to those who wait for messages before the call returns, so that its effects hold the answers
that it caused. `handle`, `channel_closed`, `routed` and `tick` are the only ways in.
"""

from __future__ import annotations

import random
from typing import Final

from gimbalmq.broker.access import AccessControl
from gimbalmq.broker.documents import Documents
from gimbalmq.broker.effects import Announce, Channel, Effect, RefusalError, Send
from gimbalmq.broker.measuring import broker_families
from gimbalmq.broker.poptable import PopTable
from gimbalmq.broker.processors.ack import AckProcessor
from gimbalmq.broker.processors.admin import AdminProcessor
from gimbalmq.broker.processors.assignment import Assignments
from gimbalmq.broker.processors.clients import ClientProcessor
from gimbalmq.broker.processors.offsets import OffsetProcessor
from gimbalmq.broker.processors.pop import PopProcessor
from gimbalmq.broker.processors.pull import PullProcessor
from gimbalmq.broker.processors.query import QueryProcessor
from gimbalmq.broker.processors.schedule import Schedule
from gimbalmq.broker.processors.send import SendProcessor
from gimbalmq.broker.processors.stats import StatsProcessor
from gimbalmq.broker.processors.transaction import Transactions
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.state import BrokerState, Handler, refused
from gimbalmq.broker.store.api import Store, StoreError
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.telemetry.families import Family
from gimbalmq.wire.bodies import TopicConfigTable
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import Command, response_to

__all__ = ["BrokerMachine"]

#: Arrivals may cause arrivals (a delivered message wakes a pop that ...); more is our mistake.
_ROUNDS_MAX: Final = 1_000
_RELAY_SCAN_MS: Final = 1_000
_PAUSE_MS: Final = 1_000


class BrokerMachine:
    """One broker; a single owner calls it with times in milliseconds that never go back.

    `chance` is where random choices come from: the same seed and calls give the same effects.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        documents: Documents,
        chance: random.Random,
        now_ms: int,
        *,
        access: AccessControl | None = None,
    ) -> None:
        self._state = state = BrokerState(settings, store, documents, chance, now_ms)
        self._access = access
        self._schedule = Schedule(state)
        self._transactions = Transactions(state, self._schedule, now_ms)
        self._pulls = PullProcessor(state, now_ms)
        popped = PopTable(state)
        self._pops = PopProcessor(state, popped, now_ms)
        self._clients = ClientProcessor(state, now_ms)
        self._assignments = Assignments(state)
        self._next_save_ms = now_ms + settings.offsets_save_ms
        self._next_relay_scan_ms = now_ms + _RELAY_SCAN_MS
        self._not_before_ms = 0
        processors = (
            SendProcessor(state, self._schedule, self._transactions),
            self._pulls,
            self._pops,
            AckProcessor(state, popped),
            self._clients,
            self._assignments,
            self._schedule,
            self._transactions,
            OffsetProcessor(state),
            QueryProcessor(state, self._schedule),
            AdminProcessor(state),
            StatsProcessor(state),
        )
        self._handlers: dict[int, Handler] = {}
        for processor in processors:
            self._handlers |= processor.handlers

    @property
    def settings(self) -> BrokerSettings:
        """What the broker works by now."""
        return self._state.settings

    @property
    def trouble(self) -> str:
        """Why the disk last refused what the broker itself wanted to store; for the log."""
        return self._state.trouble

    def families(self, connections: int) -> list[Family]:
        """What is measured, for Prometheus; `connections` is what only the front knows."""
        return broker_families(self._state, connections)

    @property
    def topics(self) -> TopicConfigTable:
        """What a registration with a name server carries."""
        return self._state.topics.table()

    @property
    def next_due_ms(self) -> int:
        """When `tick` has something to do again."""
        due_ms = min(
            self._schedule.next_due_ms,
            self._transactions.next_due_ms,
            self._pulls.next_due_ms,
            self._pops.next_due_ms,
            self._clients.next_due_ms,
            self._next_save_ms,
            self._next_relay_scan_ms,
        )
        return max(due_ms, self._not_before_ms)

    def handle(self, request: Command, channel: Channel, now_ms: int) -> list[Effect]:
        """Take one request, or a client's answer to a request of ours."""
        if request.is_response:
            self._state.answered(channel, request, now_ms)
            return self._finish(now_ms)
        answer = self._answer(request, channel, now_ms)
        effects = self._finish(now_ms)
        if request.is_oneway:
            return [
                one
                for one in effects
                if not (
                    isinstance(one, Send)
                    and one.channel is channel
                    and one.command.is_response
                    and one.command.opaque == request.opaque
                )
            ]
        if answer is not None:
            effects.append(Send(channel, answer))
        return effects

    def channel_closed(self, channel: Channel, now_ms: int) -> list[Effect]:
        """A connection is gone."""
        self._pulls.channel_closed(channel)
        self._pops.channel_closed(channel)
        self._assignments.channel_closed(channel)
        self._clients.channel_closed(channel)
        self._state.give_up_asking(now_ms, channel)
        return [
            one
            for one in self._finish(now_ms)
            if not (isinstance(one, Send) and one.channel is channel)
        ]

    def routed(self, topic: str, queues: tuple[MessageQueue, ...], now_ms: int) -> list[Effect]:
        """The answer to a `Lookup`; no queues when the name server knows none."""
        self._assignments.routed(topic, queues, now_ms)
        return self._finish(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        parts = (self._schedule, self._transactions, self._pops, self._clients, self._pulls)
        for part in parts:
            try:
                part.tick(now_ms)
            except (RefusalError, StoreError) as error:
                # The disk refuses: what was to be stored waits, and is tried again.
                self._not_before_ms = now_ms + _PAUSE_MS
                self._state.trouble = str(error)
            self._show_arrivals(now_ms)
        if now_ms >= self._next_relay_scan_ms:
            self._next_relay_scan_ms = now_ms + _RELAY_SCAN_MS
            self._state.give_up_asking(now_ms)
        if now_ms >= self._next_save_ms:
            self._next_save_ms = now_ms + self._state.settings.offsets_save_ms
            try:
                self._state.offsets.save()
            except StoreError as error:
                self._state.trouble = str(error)
        return self._finish(now_ms)

    def save(self) -> None:
        """Write what is kept in memory between saves; before a stop."""
        self._state.offsets.save()
        self._schedule.save()
        self._transactions.save()

    def _answer(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        try:
            if self._access is not None:
                self._access.check(request, channel)
            handler = self._handlers.get(request.code)
            if handler is None:
                return response_to(
                    request,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {request.code} not supported",
                )
            return handler(request, channel, now_ms)
        except GimbalError as error:
            return refused(request, error)

    def _show_arrivals(self, now_ms: int) -> None:
        arrivals = self._state.arrivals
        for _ in range(_ROUNDS_MAX):
            if not arrivals:
                return
            shown = arrivals.copy()
            arrivals.clear()
            for arrival in shown:
                self._pulls.arrived(arrival, now_ms)
                self._pops.arrived(arrival, now_ms)
        raise AssertionError("messages cause messages without end")

    def _finish(self, now_ms: int) -> list[Effect]:
        self._show_arrivals(now_ms)
        state = self._state
        effects, state.effects = state.effects, []
        if state.topics.changed:
            state.topics.changed = False
            effects.append(Announce())
        return effects
