"""Carries out what a push consumer's machine decides: turns effects into calls, and back.

Decides nothing by itself. Events are handled one after the other, never one inside another.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.group import ask_absent, check_subscriptions, list_members
from gimbalmq.flows.offset import StartFrom
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.alarms import HungListenerAlarm
from gimbalmq.runtime.consumer_parts import Executor, Machine
from gimbalmq.runtime.driver import Timer
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.listening import Listening
from gimbalmq.runtime.lock_calls import LockCalls
from gimbalmq.runtime.member_answers import MemberAnswers
from gimbalmq.runtime.offsets import OffsetKeeper
from gimbalmq.runtime.pull_calls import PullCalls, PullSettings
from gimbalmq.runtime.return_calls import ReturnCalls
from gimbalmq.runtime.weights_watch import WeightsWatch
from gimbalmq.wire.bodies import ConsumerData
from gimbalmq.wire.command import Command
from gimbalmq.wire.names import retry_topic
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["ConsumerHost", "PullSettings"]

_log = logging.getLogger("gimbalmq.consumer")

#: How often, and first after how long, the rest of a new retry topic is looked for.
_RETRY_ROUTE_LOOKS: Final = 6
_RETRY_ROUTE_PAUSE_S: Final = 0.1


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
        self.group = machine.settings.group
        self.machine = machine
        self._instance = instance
        self._subscriptions = dict(subscriptions)
        self._offsets = offsets
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
        self._locks = LockCalls(instance, self.group, self.dispatch)
        self._returns = ReturnCalls(instance, machine.settings, pulls, self.dispatch)
        self._answers = MemberAnswers(instance, machine, self._subscriptions, pulls, self.dispatch)
        #: The queues of each topic as it was first known; others are new.
        self._first_queues: dict[str, frozenset[MessageQueue]] = {}
        self._alarm_timer: Timer | None = None
        self._route_timer: Timer | None = None
        #: Offsets that are being looked for, and who waits for them.
        self._finding = 0
        self._ready: Callable[[], None] | None = None
        #: Passes that moved something, by what they were for.
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
            fx.ListMembers: self._list_members,
            fx.AskAbsent: self._ask_absent,
            fx.RenewHeartbeat: self._renew_heartbeat,
            fx.FindOffset: self._find_offset,
            fx.Pull: self._pull_calls.pull,
            fx.Consume: self._consume,
            fx.SendBack: self._returns.send_back,
            fx.Bury: self._returns.bury,
            fx.Lock: self._locks.lock,
            fx.Unlock: self._locks.unlock,
            fx.ConfirmGone: self._locks.confirm_gone,
            fx.TakeOver: self._locks.take_over,
            fx.Commit: self._commit,
            fx.Cancel: self._cancel,
            fx.HandOver: self._hand_over,
            fx.FindExpired: self._find_expired,
            fx.Announce: self._announce,
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

    def watch(self, alarm: HungListenerAlarm) -> None:
        """Look for hung listeners from now on, until the end."""

        def look() -> None:
            if self._workers is not None:
                alarm.look(self._workers.running(), self._instance.driver.now().at_s)
            timer()

        def timer() -> None:
            self._alarm_timer = self._instance.driver.call_later(alarm.look_every_s, look)

        timer()

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
        self._look_for_retry_queues(0)
        if self._weights is not None:
            self._weights.go_on()
        if not (self.machine.settings.broadcasting and self._finding):
            self._now_ready()

    def _look_for_retry_queues(self, looks: int) -> None:
        """Ask for the route of a new group's retry topic until every broker has its part in it.

        Brokers make the topic with the first heartbeat, and tell the name servers each at its own
        time. Some may never make it, so this ends.
        """
        topic = retry_topic(self.group)
        if topic not in self._subscriptions or looks == _RETRY_ROUTE_LOOKS:
            return
        routes = self._instance.routes
        known = routes.route(topic)
        have = frozenset[str]() if known is None else {one.name for one in known.brokers}
        read = [routes.route(one) for one in self._subscriptions]
        if all(one.name in have for route in read if route is not None for one in route.brokers):
            return
        if looks:
            self._instance.refresh_route(topic)
        self._route_timer = self._instance.driver.call_later(
            _RETRY_ROUTE_PAUSE_S * 2.0**looks, lambda: self._look_for_retry_queues(looks + 1)
        )

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
        self._first_queues.setdefault(route.topic, queues)
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
        places = {one.topic: self._instance.member_list_addresses((one.topic,)) for one in filtered}
        timeout_s = self._instance.settings.mq_client_api_timeout_s
        yield from check_subscriptions(
            places, self._instance.client_id, self.group, filtered, timeout_s
        )

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
        """Consume one more topic from now on."""
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

    def _list_members(self, _effect: fx.ListMembers) -> None:
        brokers = self._instance.member_list_addresses(self._subscriptions)
        timeout_s = self._instance.settings.mq_client_api_timeout_s

        def listed(result: tuple[str, ...] | GimbalError) -> None:
            if isinstance(result, GimbalError):
                self.dispatch(ev.MembersListed(None, str(result)))
            else:
                self.dispatch(ev.MembersListed(result))

        self._instance.driver.spawn(list_members(brokers, self.group, timeout_s), listed)

    def _ask_absent(self, effect: fx.AskAbsent) -> None:
        brokers = self._instance.member_list_addresses(self._subscriptions)
        timeout_s = self._instance.settings.mq_client_api_timeout_s

        def told(result: dict[str, float] | GimbalError | None) -> None:
            self.dispatch(ev.AbsentTold(None if isinstance(result, GimbalError) else result))

        self._instance.driver.spawn(
            ask_absent(brokers, self.group, effect.members, timeout_s), told
        )

    def _renew_heartbeat(self, effect: fx.RenewHeartbeat) -> None:
        wall_ms = self._instance.driver.now().wall_ms
        for topic in effect.changed:
            known = self._subscriptions[topic]
            version_ms = max(wall_ms, known.version_ms + 1)
            self._subscriptions[topic] = msgspec.structs.replace(known, version_ms=version_ms)
        self._instance.registrations.forget_fingerprints()
        self._instance.heartbeat()

    def _find_offset(self, effect: fx.FindOffset) -> None:
        queue, epoch = effect.queue, effect.epoch
        self._finding += 1

        def found(result: int | GimbalError) -> None:
            self._finding -= 1
            if isinstance(result, GimbalError):
                self.dispatch(ev.OffsetFound(queue, epoch, None, str(result)))
            else:
                self.dispatch(ev.OffsetFound(queue, epoch, result))
            if not self._finding:
                self._now_ready()

        first = self._first_queues.get(queue.topic, frozenset())
        self._offsets.find(
            queue,
            self._instance.routes.master(queue),
            found,
            new=bool(first) and queue not in first,
        )

    def _consume(self, effect: fx.Consume) -> None:
        assert self._workers is not None
        self._workers.submit(effect)

    def _find_expired(self, effect: fx.FindExpired) -> None:
        assert self._workers is not None
        latest = self._instance.driver.now().at_s - effect.older_than_s
        overdue: dict[tuple[MessageQueue, int], list[tuple[int, fx.Consume, int]]] = {}
        for work in self._workers.running():
            if work.since > latest:
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

    def _commit(self, effect: fx.Commit) -> None:
        master = self._instance.routes.master(effect.queue)
        self._offsets.commit(effect.queue, master, effect.offset)

    def _cancel(self, effect: fx.Cancel) -> None:
        assert self._workers is not None
        running = self._workers.cancel(effect.queue, effect.epoch)
        self._events.append(ev.Cancelled(effect.queue, effect.epoch, running))

    def _hand_over(self, effect: fx.HandOver) -> None:
        queue, epoch = effect.queue, effect.epoch

        def stored(result: GimbalError | None) -> None:
            self.dispatch(ev.HandedOver(queue, epoch, "" if result is None else str(result)))

        master = self._instance.routes.master(queue)
        self._offsets.hand_over(queue, master, effect.offset, stored, force=effect.force)

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
        self._instance.warn(effect.key, effect.text)

    def _leave(self, _effect: fx.Leave) -> None:
        self._instance.leave(self.group, lambda: self.dispatch(ev.Left()))

    def _end(self, _effect: fx.Stopped) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for other in (self._alarm_timer, self._route_timer):
            if other is not None:
                other.cancel()
        if self._weights is not None:
            self._weights.stop()
        self._stopped()
