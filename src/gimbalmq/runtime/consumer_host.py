"""Carries out what a push consumer's machine decides: turns effects into calls, and back.

Decides nothing by itself. Each kind of call has a module of its own (`pull_calls`, `offset_calls`,
`member_calls`, `lock_calls`, `return_calls`); here is who gets which effect, and what the instance
and the executor report. Events are handled one after the other, never one inside another.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.offset import StartFrom
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.alarms import ListenerAlarm
from gimbalmq.runtime.consumer_parts import Executor, Machine
from gimbalmq.runtime.driver import Timer
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.listening import Listening
from gimbalmq.runtime.lock_calls import LockCalls
from gimbalmq.runtime.member_answers import MemberAnswers
from gimbalmq.runtime.member_calls import MemberCalls
from gimbalmq.runtime.offset_calls import OffsetCalls
from gimbalmq.runtime.offsets import OffsetKeeper
from gimbalmq.runtime.pull_calls import PullCalls, PullSettings
from gimbalmq.runtime.retry_route import RetryRouteWatch
from gimbalmq.runtime.return_calls import ReturnCalls
from gimbalmq.runtime.weights_watch import WeightsWatch
from gimbalmq.wire.bodies import ConsumerData
from gimbalmq.wire.command import Command
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["ConsumerHost", "PullSettings"]

_log = logging.getLogger("gimbalmq.consumer")


class ConsumerHost:
    """One group's member on an instance."""

    def __init__(
        self,
        instance: ClientInstance,
        machine: Machine,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        offsets: OffsetKeeper,
        start: StartFrom,
        pulls: PullSettings,
        announced: Callable[[fx.RebalanceReport], None],
        stopped: Callable[[], None],
        moved: Callable[[fx.QueueMove], None] = lambda _move: None,
        weights: Callable[[ConsumerHost], WeightsWatch] | None = None,
    ) -> None:
        """`announced` is told of changes, and once more when all their queues have moved."""
        self.group = machine.settings.group
        self.machine = machine
        self._instance = instance
        self._subscriptions = dict(subscriptions)
        self._start = start
        self._pulls = pulls
        self._announced = announced
        self._moved = moved
        self._stopped = stopped
        self._workers: Executor | None = None
        self._timers: dict[tuple[ev.TimerName, MessageQueue | None, int], Timer] = {}
        self._events: deque[ev.Event] = deque()
        self._handling = False
        self._pull_calls = PullCalls(
            instance, self.group, self._subscriptions, pulls, self.dispatch
        )
        self._offset_calls = OffsetCalls(
            instance, offsets, self.dispatch, all_found=self._now_ready
        )
        self._member_calls = MemberCalls(instance, self.group, self._subscriptions, self.dispatch)
        self._locks = LockCalls(
            instance, self.group, self.dispatch, timeout_s=machine.settings.lock_timeout_s
        )
        self._returns = ReturnCalls(instance, machine.settings, pulls, self.dispatch)
        self._answers = MemberAnswers(instance, machine, self._subscriptions, pulls, self.dispatch)
        self._retry_route = RetryRouteWatch(instance, self.group, self._subscriptions)
        self._alarms: list[ListenerAlarm] = []
        self._alarm_timers: dict[ListenerAlarm, Timer] = {}
        #: Who waits for this member to miss nothing any more.
        self._ready: Callable[[], None] | None = None
        #: Changes of what is held, by what led to them.
        self.rebalances: Counter[ev.Trigger] = Counter()
        #: Queues that came, and queues that went.
        self.acquired = self.revoked = 0
        #: How long the last move of each queue took.
        self.pauses: dict[MessageQueue, float] = {}
        self._weights = None if weights is None else weights(self)
        self._performers = self._performing()

    def _performing(self) -> dict[type[Any], Callable[[Any], None]]:
        return {
            fx.SetTimer: self._set_timer,
            fx.RefreshRoute: self._refresh_route,
            fx.ListMembers: self._member_calls.list_members,
            fx.AskAbsent: self._member_calls.ask_absent,
            fx.RenewHeartbeat: self._member_calls.renew_heartbeat,
            fx.FindOffset: self._offset_calls.find,
            fx.Pull: self._pull_calls.pull,
            fx.Consume: self._consume,
            fx.SendBack: self._returns.send_back,
            fx.Bury: self._returns.bury,
            fx.Lock: self._locks.lock,
            fx.Unlock: self._locks.unlock,
            fx.ListEverywhere: self._member_calls.list_everywhere,
            fx.TakeOver: self._locks.take_over,
            fx.Commit: self._offset_calls.commit,
            fx.Cancel: self._cancel,
            fx.HandOver: self._offset_calls.hand_over,
            fx.FindExpired: self._find_expired,
            fx.Announce: self._announce,
            fx.Settled: self._settled,
            fx.Moved: self._note_move,
            fx.Warn: self._warn,
            fx.Leave: self._leave,
            fx.Stopped: self._end,
        }

    def attach(
        self, executor: Executor, listening: Listening | None = None, worker_count: int = 0
    ) -> None:
        """Say who takes the messages, and with which listeners if there are any."""
        self._workers = executor
        self._answers.attach(listening, worker_count)
        self.started()

    def started(self) -> None:
        """Note when it all began, for those who ask."""
        self._answers.started_ms = self.now_ms()

    def watch(self, alarm: ListenerAlarm) -> None:
        """Let an alarm look at what listeners do, from the beginning to the end."""
        self._alarms.append(alarm)

    def _look_later(self, alarm: ListenerAlarm) -> None:
        def look() -> None:
            if self._workers is not None:
                alarm.look(self._workers.running(), self._instance.driver.now().at_s)
            self._look_later(alarm)

        self._alarm_timers[alarm] = self._instance.driver.call_later(alarm.look_every_s, look)

    def dispatch(self, event: ev.Event) -> None:
        """Hand an event to the machine and carry out what it wants."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        events, performers, handle = self._events, self._performers, self.machine.handle
        monotonic = self._instance.driver.monotonic
        try:
            while events:
                for effect in handle(events.popleft(), monotonic()):
                    performers[type(effect)](effect)
        finally:
            self._handling = False

    def begin(self, ready: Callable[[], None]) -> None:
        """Start; `ready` is called when no message that is sent from then on is missed.

        Only a broadcasting member has to be waited for: where it starts is up to itself, while a
        group has an offset, or members that were there before.
        """
        self._ready = ready
        self.dispatch(ev.Started())
        for alarm in self._alarms:
            self._look_later(alarm)
        self._retry_route.begin()
        if self._weights is not None:
            self._weights.go_on()
        if not (self.machine.settings.broadcasting and self._offset_calls.finding):
            self._now_ready()

    def _now_ready(self) -> None:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            ready()

    def finished(self, done: ev.Consumed) -> None:
        """A worker is done with a run; called on the driver's side."""
        assert self._workers is not None
        self._workers.accounted(done)
        self.dispatch(done)

    # ---- what the instance reports -----------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """Subscribed topics, the retry topic among them."""
        return self._subscriptions

    def registration(self) -> ConsumerData:
        """What the heartbeat says of this member."""
        return ConsumerData(
            group=self.group,
            consume_type=self._pulls.consume_type,
            message_model="BROADCASTING" if self.machine.settings.broadcasting else "CLUSTERING",
            consume_from_where=self._start.policy.value,
            subscriptions=tuple(self._subscriptions.values()),
        )

    def on_route(self, route: TopicRoute) -> None:
        """The route of a subscribed topic is new or changed."""
        queues = route.subscribe_queues()
        self._offset_calls.topic_known(route.topic, queues)
        self.dispatch(ev.RouteLearned(route.topic, queues))

    def preflight(self) -> Flow[None] | None:
        """What to ask the brokers before joining: published weights, and about SQL expressions."""
        filtered = [one for one in self._subscriptions.values() if one.is_sql]
        if filtered or self._weights is not None:
            return self._before_joining(filtered)
        return None

    def _before_joining(self, filtered: Sequence[SubscriptionData]) -> Flow[None]:
        if self._weights is not None:
            yield from self._weights.first()
        yield from self._member_calls.check(filtered)

    def on_notice(self) -> None:
        """A broker says that the group's members changed."""
        self.dispatch(ev.Woken(ev.Trigger.NOTICE))

    def on_reconnected(self) -> None:
        """A broker has this member's registration again."""
        self.dispatch(ev.Woken(ev.Trigger.RECONNECT))

    def on_request(self, request: Command, reply: Callable[[Command], None]) -> bool:
        """Answer what brokers and tools ask a consumer."""
        return self._answers.answer(request, reply)

    @property
    def registered(self) -> bool:
        """Whether a broker has confirmed this member."""
        return any(
            self._instance.registrations.has(address, self.group)
            for _name, address in self._instance.broker_addresses()
        )

    def now_ms(self) -> int:
        """Wall time, which numbers the versions of subscriptions."""
        return self._instance.driver.now().wall_ms

    def subscribe(self, subscription: SubscriptionData) -> None:
        """Consume one more topic from now on, or another part of one."""
        known = self._subscriptions.get(subscription.topic)
        if known is not None:
            # Brokers ignore what is not newer, and the clock may have been set back.
            version_ms = max(subscription.version_ms, known.version_ms + 1)
            subscription = msgspec.structs.replace(subscription, version_ms=version_ms)
        self._subscriptions[subscription.topic] = subscription
        self.dispatch(ev.Subscribed(subscription.topic))
        route = self._instance.routes.route(subscription.topic)
        if route is not None and not route.from_template:
            self.on_route(route)
        else:
            self._instance.refresh_route(subscription.topic)

    def unsubscribe(self, topic: str) -> None:
        """Release the queues of a topic and consume it no longer."""
        if self._subscriptions.pop(topic, None) is not None:
            self.dispatch(ev.Unsubscribed(topic))

    # ---- effects -----------------------------------------------------------------------------

    def _set_timer(self, effect: fx.SetTimer) -> None:
        key = effect.name, effect.queue, effect.epoch
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()

        def fire() -> None:
            self._timers.pop(key, None)
            self.dispatch(ev.TimerFired(effect.name, effect.queue, effect.epoch))

        self._timers[key] = self._instance.driver.call_later(effect.delay_s, fire)

    def _refresh_route(self, effect: fx.RefreshRoute) -> None:
        self._instance.refresh_route(effect.topic)

    def _consume(self, effect: fx.Consume) -> None:
        assert self._workers is not None
        self._workers.submit(effect)

    def _find_expired(self, effect: fx.FindExpired) -> None:
        assert self._workers is not None
        now = self._instance.driver.now().at_s
        overdue: dict[tuple[MessageQueue, int], list[tuple[int, fx.Consume, int]]] = {}
        for work in self._workers.running():
            if now - work.had_since(now) < effect.older_than_s:
                continue
            consume = work.consume
            overdue.setdefault((consume.queue, consume.epoch), []).extend(
                (consume.batch.offsets[position], consume, position) for position in work.current()
            )
        for (queue, epoch), late in overdue.items():
            late.sort(key=lambda one: one[0])
            self._events.extend(
                ev.Expired(queue, epoch, consume.batch, position)
                for _offset, consume, position in late[: effect.most]
            )

    def _cancel(self, effect: fx.Cancel) -> None:
        assert self._workers is not None
        running = self._workers.cancel(effect.queue, effect.epoch)
        self._events.append(ev.Cancelled(effect.queue, effect.epoch, running))

    # ---- words -------------------------------------------------------------------------------

    def _announce(self, effect: fx.Announce) -> None:
        report = effect.report
        self.rebalances[report.trigger] += 1
        _log.info(
            "group %s rebalanced (%s, %s over %d members): +%d -%d =%d",
            report.group,
            report.trigger.value,
            report.strategy,
            len(report.members),
            len(report.acquired),
            len(report.revoked),
            report.kept + len(report.acquired),
            extra={"gimbalmq": {"event": "rebalance", **msgspec.to_builtins(report)}},
        )
        self._announced(report)

    def _settled(self, effect: fx.Settled) -> None:
        report = effect.report
        _log.info(
            "group %s: %d queues have moved (%s), the longest pause was %.3f s",
            report.group,
            len(report.done),
            report.trigger.value,
            max(move.pause_s for move in report.done),
            extra={"gimbalmq": {"event": "rebalance done", **msgspec.to_builtins(report)}},
        )
        self._announced(report)

    def _note_move(self, effect: fx.Moved) -> None:
        move = effect.move
        self.pauses[move.queue] = move.pause_s
        if move.acquired:
            self.acquired += 1
        else:
            self.revoked += 1
            self._pull_calls.forget(move.queue)
        _log.debug(
            "group %s %s %s after %.3f s (%s)",
            move.group,
            "consumes" if move.acquired else "has let go of",
            move.queue.path,
            move.pause_s,
            move.reason,
            extra={"gimbalmq": {"event": "queue moved", **msgspec.to_builtins(move)}},
        )
        self._moved(move)

    def _warn(self, effect: fx.Warn) -> None:
        self._instance.warn(effect.key, effect.text, effect.facts)

    def _leave(self, _effect: fx.Leave) -> None:
        self._instance.leave(self.group, lambda: self.dispatch(ev.Left()))

    def _end(self, _effect: fx.Stopped) -> None:
        for timer in (*self._timers.values(), *self._alarm_timers.values()):
            timer.cancel()
        self._timers.clear()
        self._alarm_timers.clear()
        self._retry_route.stop()
        if self._weights is not None:
            self._weights.stop()
        self._stopped()
