"""The push consumer of one group: who owns what, what to pull, what to commit.

Theory of operation. `handle(event, now)` is the only way in; it changes the state and returns
effects, in order. One owner calls it, so there are no locks; time comes in as an argument, so a
run can be replayed. The parts:

* `PassPlanner` decides when to ask for the member list and turns it into targets (ownership);
* `Holdings` carries a target out: it acquires (lock if need be, find the offset) and revokes,
  which `Release` does step by step;
* `LockKeeper` asks for queue locks and renews them, `TakeOvers` says whose may be taken off;
* `PullLoop` runs the pull loop of each held queue, `Delivery` what listeners do with it;
* this class says which part hears of which event, and what the end of one starts in another.

Invariants (checked by `validate`): a queue is held once; an answer with an old epoch changes
nothing; a queue that is on its way out is never pulled; the committed offset never passes an
unfinished message; no message of a locked queue starts after its permit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer import events as ev
from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.delivery import Delivery
from gimbalmq.core.consumer.effects import (
    Cancel,
    Commit,
    Effect,
    FindExpired,
    Leave,
    ListMembers,
    RenewHeartbeat,
    Stopped,
)
from gimbalmq.core.consumer.events import TimerName, Trigger
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.consumer.holdings import Holdings
from gimbalmq.core.consumer.keyed import KeyedDelivery, KeyOf
from gimbalmq.core.consumer.locks import LockKeeper
from gimbalmq.core.consumer.passes import PassPlanner, Target
from gimbalmq.core.consumer.pulling import PullLoop
from gimbalmq.core.consumer.release import Release
from gimbalmq.core.consumer.reports import Reports
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.consumer.take_over import TakeOvers
from gimbalmq.core.consumer.tally import Tally
from gimbalmq.core.process_queue import ProcessQueue
from gimbalmq.core.rebalance import Reason
from gimbalmq.model.queue import MessageQueue

__all__ = ["ConsumerMachine"]

#: Messages that took too long and are sent back at one look, of each queue (Java's number).
_EXPIRED_MOST = 16
#: Looks for such messages while the consume timeout passes once; Java looks once.
_EXPIRED_LOOKS = 15


class ConsumerMachine:
    """Decides for one member of one group; see the module for the theory."""

    passive = False

    def __init__(
        self,
        settings: ConsumerSettings,
        strategy: Strategy,
        topics: Iterable[str],
        *,
        key_of: KeyOf | None = None,
    ) -> None:
        """`key_of` lets the keys of a queue be consumed in parallel, each in order."""
        self.settings = settings
        self.passes = PassPlanner(settings, strategy, topics)
        self._context = Context(settings)
        self._delivery = (
            Delivery(self._context, progressed=self._progressed)
            if key_of is None
            else KeyedDelivery(self._context, progressed=self._progressed, key_of=key_of)
        )
        self._pulls = PullLoop(
            self._context,
            arrived=self._delivery.arrived,
            moved=self._offset_moved,
            in_order=settings.ordered and key_of is None,
        )
        self._locks = LockKeeper(
            self._context, secured=self._delivery.start_waiting, lost=self._lock_lost
        )
        self._take_overs = TakeOvers(self._context)
        self._releases = Release(self._context, gone=self._gone)
        self._reports = Reports(self._context)
        self._holdings = Holdings(
            self._context,
            self._locks,
            self._releases,
            self._reports,
            located=self._located,
            failed=self._not_located,
        )
        self._left = False
        #: What the user chose, where the user does.
        self._assigned: frozenset[MessageQueue] = frozenset()
        self._handlers = self._who_hears_what()

    def _who_hears_what(self) -> dict[type[Any], Callable[[Any, float], None]]:
        return {
            ev.PullAnswered: self._pulls.answered,
            ev.PullFailed: lambda event, _now: self._pulls.failed(event),
            ev.Consumed: self._on_consumed,
            ev.Polled: self._on_polled,
            ev.SentBack: self._on_sent_back,
            ev.Expired: self._on_expired,
            ev.TimerFired: self._on_timer,
            ev.Started: self._on_started,
            ev.StopRequested: self._on_stop_requested,
            ev.Woken: self._on_woken,
            ev.RouteLearned: self._on_route,
            ev.MembersListed: self._on_members,
            ev.AbsentTold: self._on_absent_told,
            ev.WeightsRead: lambda event, now: self._carry_out(
                self.passes.learn_weights(event, now), now
            ),
            ev.OffsetFound: self._holdings.offset_found,
            ev.LockAnswered: self._on_lock_answered,
            ev.Unlocked: self._releases.unlocked,
            ev.ListedEverywhere: self._take_overs.listed_everywhere,
            ev.TakenOver: lambda event, _now: self._locks.taken_over(event),
            ev.Cancelled: self._releases.cancelled,
            ev.HandedOver: self._releases.handed_over,
            ev.Paused: self._on_paused,
            ev.Resumed: self._on_resumed,
            ev.Subscribed: self._on_subscribed,
            ev.Unsubscribed: self._on_unsubscribed,
            ev.Assigned: self._on_assigned,
            ev.SeekRequested: self._on_seek,
            ev.OffsetsReset: self._on_offsets_reset,
            ev.Left: self._on_left,
        }

    # ---- entry -------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> list[Effect]:
        """Take one event in; returns what has to be done, in order."""
        if not self._left:
            self._handlers[type(event)](event, now)
        effects, self._context.out = self._context.out, []
        return effects

    @property
    def held(self) -> dict[MessageQueue, HeldQueue]:
        """Every queue in hand, those on their way in or out included."""
        return self._context.held

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now."""
        return frozenset(queue for queue, held in self.held.items() if held.owned)

    def absent(self, now: float) -> dict[str, float] | None:
        """For members that ask: for how many seconds others are gone; None: ask another one."""
        return self.passes.absent(now)

    def ground(self, now: float) -> Ground:
        """What this member shares out queues by."""
        return self.passes.ground(now)

    def tally(self) -> Tally:
        """What came of all messages since the start."""
        return self._context.tally()

    def validate(self) -> None:
        """Check the invariants; tests call it after every step."""
        epochs = [held.epoch for held in self.held.values()]
        assert len(set(epochs)) == len(epochs)
        for queue, held in self.held.items():
            assert held.queue == queue
            assert (held.process is None) == (
                held.state in {HeldState.LOCKING, HeldState.LOCATING, HeldState.UNLOCKING}
            ) or held.state is HeldState.UNLOCKING
            assert (held.permit is not None) == self.settings.locking
            if held.process is not None:
                assert held.process.commit_offset <= held.process.next_offset
                assert held.process.cached_count >= 0
                assert held.returning >= 0

    # ---- life --------------------------------------------------------------------------------

    def _on_started(self, _event: ev.Started, now: float) -> None:
        self._context.set_timer(TimerName.COMMIT, self.settings.persist_consumer_offset_interval_s)
        if self.settings.locking:
            self._context.set_timer(TimerName.RENEW_LOCKS, self.settings.lock_renew_s)
        self._look_for_expired_later()
        if not self.settings.manual:
            self._request_pass(Trigger.START, now)

    def _on_stop_requested(self, event: ev.StopRequested, now: float) -> None:
        if self._context.stopping:
            return
        self._context.stopping = True
        self._context.drain_s = event.drain_s
        self.passes.stop()
        if not self.held:
            self._context.out.append(Leave())
        self._give_up(self.held.values(), Trigger.STOP, Trigger.STOP.value, now)

    def _on_left(self, _event: ev.Left, _now: float) -> None:
        self._left = True
        self._context.out.append(Stopped())

    def _on_timer(self, event: ev.TimerFired, now: float) -> None:
        match event.name:
            case TimerName.REBALANCE:
                self._request_pass(Trigger.TIMER, now)
            case TimerName.NEXT_PASS:
                self._carry_out(self.passes.due(now), now)
                if self.settings.manual:
                    self._assign(now)
            case TimerName.COMMIT:
                self._commit_all(now)
            case TimerName.RENEW_LOCKS:
                self._locks.renew()
            case TimerName.LOCK:
                self._locks.retry()
            case TimerName.TAKE_OVER:
                self._take_overs.plan(now)
            case TimerName.EXPIRE:
                self._look_for_expired()
            case _:
                held = self._context.current(event.queue, event.epoch)
                if held is not None:
                    self._on_queue_timer(event.name, held, now)

    def _on_queue_timer(self, name: TimerName, held: HeldQueue, now: float) -> None:
        match name:
            case TimerName.PULL:
                self._pulls.retry(held, now)
            case TimerName.REDELIVER:
                self._delivery.redeliver(held, now)
            case TimerName.CONTINUE:
                self._delivery.go_on(held, now)
            case TimerName.DRAIN:
                self._releases.drain_overdue(held, now)
            case _:  # the other timers belong to no queue
                raise AssertionError(name)

    def _commit_all(self, now: float) -> None:
        # Also when unchanged, as Java does: it repairs an offset that a late commit of an
        # earlier owner moved back. But not while somebody else may own the queue.
        paused = self._pulls.all_paused
        for held in self.held.values():
            if held.owned and held.process is not None and held.sure(now):
                offset = held.process.commit_offset
                if paused and offset == held.committed:
                    continue  # it may not even know that another member has the queue
                held.committed = offset
                self._context.out.append(Commit(held.queue, offset))
        self._context.set_timer(TimerName.COMMIT, self.settings.persist_consumer_offset_interval_s)

    def _look_for_expired_later(self) -> None:
        timeout_s = self.settings.consume_timeout_s
        if self.settings.expiring and timeout_s is not None:
            self._context.set_timer(TimerName.EXPIRE, timeout_s / _EXPIRED_LOOKS)

    def _look_for_expired(self) -> None:
        assert self.settings.consume_timeout_s is not None
        self._context.out.append(FindExpired(self.settings.consume_timeout_s, _EXPIRED_MOST))
        self._look_for_expired_later()

    # ---- ownership ---------------------------------------------------------------------------

    def _on_paused(self, event: ev.Paused, _now: float) -> None:
        self._pulls.pause(event.queues)
        if event.balancing:
            self.passes.pause()

    def _on_resumed(self, event: ev.Resumed, now: float) -> None:
        if event.queues is None:
            self._carry_out(self.passes.resume(now), now)
        self._pulls.resume(event.queues, now)

    def _request_pass(self, trigger: Trigger, now: float) -> None:
        self._carry_out(self.passes.request(trigger, now), now)

    def _carry_out(self, effects: Iterable[Effect], now: float) -> None:
        for effect in effects:
            if self.settings.broadcasting and isinstance(effect, ListMembers):
                # Every member owns everything: nobody needs to be asked.
                self._on_members(ev.MembersListed((self.settings.client_id,)), now)
            else:
                self._context.out.append(effect)

    def _on_woken(self, event: ev.Woken, now: float) -> None:
        if event.trigger is Trigger.NOTICE:
            self._take_overs.noticed(now)
        elif event.trigger is Trigger.RECONNECT:
            self._take_overs.reconnected(now)
        self._request_pass(event.trigger, now)

    def _on_route(self, event: ev.RouteLearned, now: float) -> None:
        self._carry_out(self.passes.learn_route(event.topic, event.queues, now), now)

    def _on_subscribed(self, event: ev.Subscribed, _now: float) -> None:
        self.passes.add_topic(event.topic)
        # The pass follows with its route.
        self._context.out.append(RenewHeartbeat((event.topic,)))

    def _on_unsubscribed(self, event: ev.Unsubscribed, now: float) -> None:
        self._context.out.append(RenewHeartbeat())
        given_up = [held for queue, held in self.held.items() if queue.topic == event.topic]
        self._give_up(given_up, Trigger.SUBSCRIPTION, Reason.UNSUBSCRIBED.value, now)
        self.passes.remove_topic(event.topic)
        self._limits_changed(now)

    def _give_up(
        self, some: Iterable[HeldQueue], trigger: Trigger, reason: str, now: float
    ) -> None:
        """Give queues up without a pass, and tell of that topic by topic."""
        by_topic: dict[str, list[HeldQueue]] = {}
        for held in some:
            if not held.released:
                by_topic.setdefault(held.queue.topic, []).append(held)
        for topic, given_up in by_topic.items():
            going = frozenset(held.queue for held in given_up)
            target = (
                self._manual_target(topic, trigger, going)
                if self.settings.manual
                else self.passes.present(topic, trigger, going)
            )
            self._holdings.give_up(given_up, target, now, reason)

    def _on_members(self, event: ev.MembersListed, now: float) -> None:
        if event.members is not None and self.settings.locking:
            self._take_overs.members_listed(event.members, now)
        targets, effects = self.passes.members_listed(event, now)
        changed = [target.topic for target in targets if self._holdings.move_to(target, now)]
        if changed:
            self._limits_changed(now)
            self._context.out.append(RenewHeartbeat(tuple(changed)))
        self._carry_out(effects, now)

    def _on_absent_told(self, event: ev.AbsentTold, now: float) -> None:
        # A newcomer that has seen nobody go takes over from them like everybody else.
        self._take_overs.told_gone(event.absent or (), now)
        self._carry_out(self.passes.absent_told(event, now), now)

    def _limits_changed(self, now: float) -> None:
        before = self._context.limits
        self._context.share_limits()
        if self._context.limits != before:
            self._pulls.limits_changed(now)

    def _located(self, held: HeldQueue, now: float) -> None:
        self.passes.located(held.queue)
        self._pulls.pull(held, now)

    def _not_located(self, held: HeldQueue, now: float) -> None:
        self._carry_out(self.passes.not_located(held.queue, now), now)

    def _progressed(self, held: HeldQueue, now: float) -> None:
        self._pulls.progressed(held, now)

    def _offset_moved(self, held: HeldQueue, offset: int, now: float) -> None:
        held.reset_offset = offset
        self._give_up((held,), Trigger.OFFSET, f"offset moved to {offset}", now)

    def _on_lock_answered(self, event: ev.LockAnswered, now: float) -> None:
        self._locks.answered(event, now)
        self._releases.renewed(event)
        self._take_overs.plan(now)

    def _lock_lost(self, held: HeldQueue, why: str, now: float) -> None:
        if not held.released:
            path = held.queue.path
            self._context.warn(f"lock {path}", f"{path}: {why}; giving the queue up")
            self._give_up((held,), Trigger.LOCK, Reason.LOCK_LOST.value, now)
        else:
            held.followed = True  # what fails from now on is the next owner's, too

    def _on_assigned(self, event: ev.Assigned, now: float) -> None:
        self._assigned = event.queues
        self._assign(now)

    def _assign(self, now: float) -> None:
        for topic in sorted({queue.topic for queue in (*self._assigned, *self.held)}):
            target = self._manual_target(topic, Trigger.SUBSCRIPTION, frozenset())
            self._holdings.move_to(target, now)

    def _manual_target(
        self, topic: str, trigger: Trigger, without: frozenset[MessageQueue]
    ) -> Target:
        chosen = frozenset(queue for queue in self._assigned if queue.topic == topic)
        return Target(topic, chosen - without, trigger, (self.settings.client_id,), "MANUAL")

    def _on_seek(self, event: ev.SeekRequested, now: float) -> None:
        held = self.held.get(event.queue)
        if held is None or not held.owned:
            return
        # Under a new number, so that neither the pull in flight nor what waits counts any more.
        self._context.out.append(Cancel(held.queue, held.epoch))
        # Now: what is stored when the queue is let go never moves an offset back.
        self._context.out.append(Commit(held.queue, event.offset))
        fresh = self._context.hold(held.queue, now)
        fresh.permit = held.permit
        fresh.tally = held.tally
        fresh.process = ProcessQueue(event.offset)
        fresh.committed = event.offset
        self._pulls.pull(fresh, now)
        self._pulls.room_for_all(now)

    def _on_offsets_reset(self, event: ev.OffsetsReset, now: float) -> None:
        for queue, offset in event.offsets.items():
            held = self.held.get(queue)
            if held is None:
                continue
            if held.state in {HeldState.LOCATING, HeldState.HANDING_OVER}:
                held.reset_offset = offset  # counts when the answer is there
            elif held.process is not None:
                self._offset_moved(held, offset, now)

    def _gone(self, held: HeldQueue, now: float) -> None:
        self._reports.went(held, now)
        if self._context.stopping:
            if not self.held:
                self._context.out.append(Leave())
            return
        self._pulls.room_for_all(now)
        if held.process is None and not held.wanted_again:
            return  # it was never had: whoever wants it tries again in time
        if self.settings.manual:
            if held.queue in self._assigned:
                self._assign(now)
        elif self.passes.wants(held.queue):
            self._request_pass(Trigger.RELEASE, now)

    # ---- results -----------------------------------------------------------------------------

    def _on_consumed(self, event: ev.Consumed, now: float) -> None:
        held = self._context.current(event.queue, event.epoch)
        if held is None or held.process is None:
            return
        self._delivery.consumed(held, event, now)
        if held.released:
            self._releases.consumed(held, event, now)

    def _on_polled(self, event: ev.Polled, now: float) -> None:
        held = self._context.current(event.queue, event.epoch)
        if held is not None and held.process is not None and not held.released:
            held.process.hand_out(event.batch, event.until)
            self._pulls.progressed(held, now)

    def _on_expired(self, event: ev.Expired, _now: float) -> None:
        held = self._context.current(event.queue, event.epoch)
        if held is not None and held.process is not None:
            self._delivery.expired(held, event)

    def _on_sent_back(self, event: ev.SentBack, now: float) -> None:
        held = self._context.current(event.queue, event.epoch)
        if held is not None and held.process is not None:
            self._delivery.sent_back(held, event, now)
            if held.released:
                self._releases.returned(held, now)
