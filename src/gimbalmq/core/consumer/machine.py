"""The push consumer of one group: who owns what, what to pull, what to commit.

Theory of operation. `handle(event, now)` is the only way in; it changes the state and returns
effects, in order. One owner calls it, so there are no locks; time comes in as an argument, so a
run can be replayed. Two halves:

* `PassPlanner` decides when to ask for the member list and turns it into a target (ownership);
* this class carries the target out: it acquires (find the offset, then pull), revokes (cancel
  what waits, let listeners finish, store the offset, let go) and runs the pull loop of each held
  queue, exactly one pull in flight each.

Invariants (checked by `validate`): a queue is held once; an answer with an old epoch changes
nothing; a queue that is on its way out is never pulled; the committed offset never passes an
unfinished message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer.effects import (
    Announce,
    Cancel,
    Commit,
    Consume,
    Effect,
    FindOffset,
    HandOver,
    Leave,
    Pull,
    RebalanceReport,
    RenewHeartbeat,
    SendBack,
    SetTimer,
    Stopped,
    Warn,
)
from gimbalmq.core.consumer.events import (
    Cancelled,
    Consumed,
    Event,
    HandedOver,
    Left,
    MembersListed,
    OffsetFound,
    Paused,
    PullAnswered,
    PullFailed,
    Resumed,
    RouteLearned,
    SentBack,
    Started,
    StopRequested,
    TimerFired,
    TimerName,
    Trigger,
    Woken,
)
from gimbalmq.core.consumer.held import HeldQueue, HeldState
from gimbalmq.core.consumer.passes import PassPlanner, Target
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.flow_control import held_back
from gimbalmq.core.process_queue import ProcessQueue
from gimbalmq.core.rebalance import HeldView, plan_rebalance
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["ConsumerMachine"]

_FLOW_CONTROL: Final = 215
#: The broker does not know our subscription (24), or an older one (25): heartbeat, then retry.
_SUBSCRIPTION_UNKNOWN: Final = frozenset({24, 25})


class ConsumerMachine:
    """Decides for one member of one group; see the module for the theory."""

    def __init__(
        self, settings: ConsumerSettings, strategy: Strategy, topics: Iterable[str]
    ) -> None:
        self.settings = settings
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.passes = PassPlanner(settings, strategy, topics)
        self._epoch = 0
        self._paused: set[MessageQueue] = set()
        self._all_paused = False
        self._drain_s = settings.release_drain_s
        self._stopping = False
        self._left = False
        self._out: list[Effect] = []
        self._handlers: dict[type[Any], Callable[[Any, float], None]] = {
            Started: self._on_started,
            StopRequested: self._on_stop_requested,
            TimerFired: self._on_timer,
            Woken: self._on_woken,
            RouteLearned: self._on_route,
            MembersListed: self._on_members,
            OffsetFound: self._on_offset,
            PullAnswered: self._on_pull_answered,
            PullFailed: self._on_pull_failed,
            Consumed: self._on_consumed,
            SentBack: self._on_sent_back,
            Cancelled: self._on_cancelled,
            HandedOver: self._on_handed_over,
            Paused: self._on_paused,
            Resumed: self._on_resumed,
            Left: self._on_left,
        }

    # ---- entry -------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in; returns what has to be done, in order."""
        if not self._left:
            self._handlers[type(event)](event, now)
        effects, self._out = self._out, []
        return effects

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that this member owns now."""
        return frozenset(queue for queue, held in self.held.items() if held.owned)

    def validate(self) -> None:
        """Check the invariants; tests call it after every step."""
        epochs = [held.epoch for held in self.held.values()]
        assert len(set(epochs)) == len(epochs)
        for queue, held in self.held.items():
            assert held.queue == queue
            assert held.process is not None or held.state is HeldState.LOCATING
            if held.process is not None:
                assert held.process.commit_offset <= held.process.next_offset
                assert held.process.cached_count >= 0

    # ---- life --------------------------------------------------------------------------------

    def _on_started(self, _event: Started, now: float) -> None:
        interval = self.settings.persist_consumer_offset_interval_s
        self._out.append(SetTimer(TimerName.COMMIT, interval))
        self._out += self.passes.request(Trigger.START, now)

    def _on_stop_requested(self, event: StopRequested, now: float) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._drain_s = event.drain_s
        self.passes.stop()
        for held in list(self.held.values()):
            self._release(held, now)
        self._leave_when_empty()

    def _leave_when_empty(self) -> None:
        if self._stopping and not self.held:
            self._out.append(Leave())

    def _on_left(self, _event: Left, _now: float) -> None:
        self._left = True
        self._out.append(Stopped())

    def _on_timer(self, event: TimerFired, now: float) -> None:
        match event.name:
            case TimerName.REBALANCE:
                self._out += self.passes.request(Trigger.TIMER, now)
            case TimerName.NEXT_PASS:
                self._out += self.passes.due(now)
            case TimerName.COMMIT:
                self._commit_all()
            case TimerName.PULL | TimerName.REDELIVER | TimerName.DRAIN:
                held = self._current(event.queue, event.epoch)
                if held is not None:
                    self._on_queue_timer(event.name, held, now)

    def _on_queue_timer(self, name: TimerName, held: HeldQueue, now: float) -> None:
        if name is TimerName.PULL and held.state is HeldState.WAITING:
            self._pull(held, now)
        elif name is TimerName.REDELIVER and not held.released:
            again, held.redeliver = held.redeliver, []
            self._out += (
                Consume(held.queue, held.epoch, batch, position, position + 1)
                for batch, position in again
            )
        elif name is TimerName.DRAIN and held.state is HeldState.DRAINING:
            self._out.append(
                Warn(
                    f"drain {held.queue.path}",
                    f"{held.queue.path}: {held.running} messages still in listeners after "
                    f"{self._drain_s:g} s; the queue is handed over and they will be delivered "
                    "again to its next owner",
                )
            )
            self._hand_over(held)

    def _commit_all(self) -> None:
        # Also when unchanged, as Java does: it repairs an offset that a late commit of an
        # earlier owner moved back.
        for held in self.held.values():
            if held.owned and held.process is not None:
                self._out.append(Commit(held.queue, held.process.commit_offset))
        if not self._stopping:
            interval = self.settings.persist_consumer_offset_interval_s
            self._out.append(SetTimer(TimerName.COMMIT, interval))

    # ---- ownership ---------------------------------------------------------------------------

    def _on_woken(self, event: Woken, now: float) -> None:
        self._out += self.passes.request(event.trigger, now)

    def _on_route(self, event: RouteLearned, now: float) -> None:
        self._out += self.passes.learn_route(event.topic, event.queues, now)

    def _on_members(self, event: MembersListed, now: float) -> None:
        targets, effects = self.passes.members_listed(event, now)
        changed = [target.topic for target in targets if self._apply(target, now)]
        if changed:
            self._out.append(RenewHeartbeat(tuple(changed)))
        self._out += effects

    def _apply(self, target: Target, now: float) -> bool:
        """Move from what is held of one topic to the target; True when something changed."""
        views = {
            queue: HeldView(last_pull_at=self._last_activity(held, now), dropped=held.released)
            for queue, held in self.held.items()
            if queue.topic == target.topic
        }
        plan = plan_rebalance(
            views, target.queues, now=now, pull_idle_limit_s=self.settings.pull_idle_limit_s
        )
        revoked = [step for step in plan.revoke if not self.held[step.queue].released]
        for step in revoked:
            self._release(self.held[step.queue], now)
        # A queue that is still being let go is taken again once that is done.
        acquired = [step for step in plan.acquire if step.queue not in self.held]
        for step in acquired:
            self._acquire(step.queue, now)
        if not (revoked or acquired):
            return False
        self._out.append(
            Announce(
                RebalanceReport(
                    group=self.settings.group,
                    trigger=target.trigger,
                    members=target.members,
                    strategy=target.strategy,
                    acquired=tuple(step.queue for step in acquired),
                    revoked=tuple(step.queue for step in revoked),
                    kept=len(plan.keep),
                    reasons=tuple(sorted({step.reason.value for step in (*revoked, *acquired)})),
                )
            )
        )
        return True

    @staticmethod
    def _last_activity(held: HeldQueue, now: float) -> float:
        # Only a pull that never came back can be idle for too long; a queue that is held back
        # by slow listeners or paused by the user is not lost.
        return held.last_pull_at if held.state is HeldState.PULLING else now

    def _acquire(self, queue: MessageQueue, now: float) -> None:
        self._epoch += 1
        held = HeldQueue(queue, self._epoch, now)
        self.held[queue] = held
        self._out.append(FindOffset(queue, held.epoch))

    def _on_offset(self, event: OffsetFound, now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None or held.process is not None:
            return
        if event.offset is None or event.offset < 0:
            # Never map an error to an offset: the queue stays unowned until the next pass.
            del self.held[event.queue]
            why = event.reason or f"offset {event.offset}"
            self._out.append(
                Warn(
                    f"offset {event.queue.path}",
                    f"{event.queue.path}: no start offset ({why}); trying again",
                )
            )
            self._out += self.passes.retry(Trigger.RETRY, now)
            return
        held.process = ProcessQueue(event.offset)
        self.passes.settled(event.queue)
        self._pull(held, now)

    def _release(self, held: HeldQueue, now: float) -> None:
        if held.released:
            return
        if held.process is None:
            self._remove(held, now)
            return
        held.state = HeldState.DRAINING
        self._out.append(Cancel(held.queue, held.epoch))

    def _on_cancelled(self, event: Cancelled, _now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None or held.state is not HeldState.DRAINING:
            return
        held.running = event.running
        if not held.running:
            self._hand_over(held)
        else:
            self._out.append(SetTimer(TimerName.DRAIN, self._drain_s, held.queue, held.epoch))

    def _hand_over(self, held: HeldQueue) -> None:
        assert held.process is not None
        held.state = HeldState.HANDING_OVER
        if held.reset_offset is not None:
            offset, force = held.reset_offset, True
        else:
            offset, force = held.process.commit_offset, False
        self._out.append(HandOver(held.queue, held.epoch, offset, force))

    def _on_handed_over(self, event: HandedOver, now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None:
            return
        if event.reason:
            self._out.append(
                Warn(
                    f"hand-over {event.queue.path}",
                    f"{event.queue.path}: last offset could not be stored ({event.reason}); "
                    "its next owner reads some messages again",
                )
            )
        self._remove(held, now)

    def _remove(self, held: HeldQueue, now: float) -> None:
        del self.held[held.queue]
        if self._stopping:
            self._leave_when_empty()
        elif held.released and self.passes.wants(held.queue):
            self._out += self.passes.request(Trigger.RELEASE, now)

    def _current(self, queue: MessageQueue | None, epoch: int) -> HeldQueue | None:
        held = None if queue is None else self.held.get(queue)
        return held if held is not None and held.epoch == epoch else None

    # ---- pull loop ---------------------------------------------------------------------------

    def _pull(self, held: HeldQueue, now: float) -> None:
        assert held.process is not None
        assert not held.released
        if self._all_paused or held.queue in self._paused:
            held.state = HeldState.PAUSED
        elif held_back(held.process, self.settings.limits) is not None:
            held.state = HeldState.HELD_BACK
        else:
            held.state = HeldState.PULLING
            held.last_pull_at = now
            process = held.process
            self._out.append(
                Pull(held.queue, held.epoch, process.next_offset, process.commit_offset)
            )

    def _on_pull_answered(self, event: PullAnswered, now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None or held.state is not HeldState.PULLING:
            return
        assert held.process is not None
        held.failed_pulls = 0
        if event.status is PullStatus.OFFSET_ILLEGAL:
            # The offset is outside what the broker stores, or an operator reset it: store the
            # one that the broker names and start over there.
            held.reset_offset = event.next_offset
            self._release(held, now)
            return
        if event.messages:
            batch = held.process.put(
                event.messages,
                event.offsets,
                body_bytes=event.body_bytes,
                next_offset=event.next_offset,
            )
            self._out.append(Consume(held.queue, held.epoch, batch, 0, len(event.messages)))
        else:
            held.process.advance(event.next_offset)
        self._pull(held, now)

    def _on_pull_failed(self, event: PullFailed, _now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None or held.state is not HeldState.PULLING:
            return
        held.state = HeldState.WAITING
        held.failed_pulls += 1
        delay_s = self.settings.pull_retry_s
        if event.code == _FLOW_CONTROL:
            delay_s = self.settings.pull_retry_busy_s
        elif event.code in _SUBSCRIPTION_UNKNOWN:
            self._out.append(RenewHeartbeat())
            delay_s = min(delay_s, 0.05 * 2**held.failed_pulls)
        else:
            self._out.append(
                Warn(f"pull {event.queue.path}", f"{event.queue.path}: {event.reason}")
            )
        self._out.append(SetTimer(TimerName.PULL, delay_s, held.queue, held.epoch))

    def _on_consumed(self, event: Consumed, now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None or held.process is None:
            return
        start = event.first
        for position, _level in event.failures:
            if start < position:
                held.process.finish(event.batch, start, position)
            start = position + 1
        if start < event.until:
            held.process.finish(event.batch, start, event.until)
        if held.released:
            # What failed stays unfinished: the next owner gets it again.
            held.running -= event.until - event.first
            if held.state is HeldState.DRAINING and held.running <= 0:
                self._hand_over(held)
            return
        self._out += (
            SendBack(held.queue, held.epoch, event.batch, position, level)
            for position, level in event.failures
        )
        if held.state is HeldState.HELD_BACK:
            self._pull(held, now)

    def _on_sent_back(self, event: SentBack, now: float) -> None:
        held = self._current(event.queue, event.epoch)
        if held is None or held.process is None:
            return
        if event.ok:
            held.process.finish(event.batch, event.position, event.position + 1)
            if held.state is HeldState.HELD_BACK:
                self._pull(held, now)
            return
        if held.released:
            return
        self._out.append(
            Warn(
                f"send back {event.queue.path}",
                f"{event.queue.path} offset {event.batch.offsets[event.position]}: sending back "
                f"failed ({event.reason}); delivered again in {self.settings.redeliver_s:g} s",
            )
        )
        if not held.redeliver:
            self._out.append(
                SetTimer(TimerName.REDELIVER, self.settings.redeliver_s, held.queue, held.epoch)
            )
        held.redeliver.append((event.batch, event.position))

    def _on_paused(self, event: Paused, _now: float) -> None:
        if event.queues is None:
            self._all_paused = True
        else:
            self._paused |= event.queues

    def _on_resumed(self, event: Resumed, now: float) -> None:
        if event.queues is None:
            self._all_paused = False
            self._paused.clear()
        else:
            self._paused -= event.queues
        for queue in sorted_queues(self.held):
            if self.held[queue].state is HeldState.PAUSED:
                self._pull(self.held[queue], now)
