"""The classic pull consumer's side of balancing: who owns what, and nothing else.

The user pulls, keeps offsets and commits; the member only takes part in sharing out the queues
and is told when its share changes. Nothing is pulled, located or released here, and no queue
expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gimbalmq.core.allocation import Strategy
from gimbalmq.core.consumer import events as ev
from gimbalmq.core.consumer.effects import (
    Announce,
    Effect,
    Leave,
    RenewHeartbeat,
    Stopped,
    Warn,
)
from gimbalmq.core.consumer.events import TimerName, Trigger
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.passes import PassPlanner, Target
from gimbalmq.core.consumer.reports import report_of
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.rebalance import Reason
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["PassiveMachine"]


class PassiveMachine:
    """Decides the share of one member that pulls by itself."""

    passive = True

    def __init__(
        self, settings: ConsumerSettings, strategy: Strategy, topics: Iterable[str]
    ) -> None:
        self.settings = settings
        self.passes = PassPlanner(settings, strategy, topics)
        #: Nothing is in this machine's hands; tools ask for it all the same.
        self.held: dict[MessageQueue, HeldQueue] = {}
        self._owned: dict[str, frozenset[MessageQueue]] = {}
        self._left = False
        self._handlers: dict[type[Any], Callable[[Any, float], list[Effect]]] = {
            ev.Started: lambda _event, now: self.passes.request(Trigger.START, now),
            ev.Woken: lambda event, now: self.passes.request(event.trigger, now),
            ev.TimerFired: self._on_timer,
            ev.RouteLearned: lambda event, now: self.passes.learn_route(
                event.topic, event.queues, now
            ),
            ev.MembersListed: self._on_members,
            ev.Subscribed: self._on_subscribed,
            ev.Unsubscribed: self._on_unsubscribed,
            ev.OffsetsReset: self._on_offsets_reset,
            ev.StopRequested: self._on_stop_requested,
            ev.Left: self._on_left,
        }

    def handle(self, event: ev.Event, now: float) -> list[Effect]:
        """Take one event in; returns what has to be done, in order."""
        return [] if self._left else self._handlers[type(event)](event, now)

    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are this member's to pull."""
        return frozenset(queue for queues in self._owned.values() for queue in queues)

    def absent(self, now: float) -> dict[str, float] | None:
        """For members that ask: for how many seconds others are gone; None: ask another one."""
        return self.passes.absent(now)

    def ground(self, now: float) -> Ground:
        """What this member shares out queues by."""
        return self.passes.ground(now)

    def _on_timer(self, event: ev.TimerFired, now: float) -> list[Effect]:
        if event.name is TimerName.REBALANCE:
            return self.passes.request(Trigger.TIMER, now)
        assert event.name is TimerName.NEXT_PASS
        return self.passes.due(now)

    def _on_subscribed(self, event: ev.Subscribed, _now: float) -> list[Effect]:
        self.passes.add_topic(event.topic)
        return [RenewHeartbeat((event.topic,))]  # the pass follows with its route

    def _on_unsubscribed(self, event: ev.Unsubscribed, _now: float) -> list[Effect]:
        given_up = self._give_up(event.topic, Trigger.SUBSCRIPTION, Reason.UNSUBSCRIBED.value)
        self.passes.remove_topic(event.topic)
        return [RenewHeartbeat(), *given_up]

    def _on_members(self, event: ev.MembersListed, now: float) -> list[Effect]:
        targets, effects = self.passes.members_listed(event, now)
        for target in targets:
            effects += self._change(target, Reason.NOT_IN_TARGET.value)
        return effects

    def _give_up(self, topic: str, trigger: Trigger, why: str) -> list[Effect]:
        owned = self._owned.get(topic, frozenset())
        return self._change(self.passes.present(topic, trigger, owned), why)

    def _change(self, target: Target, why: str) -> list[Effect]:
        """Own what the target says, and tell of it if that is not what was owned before."""
        before = self._owned.pop(target.topic, frozenset())
        if target.queues:
            self._owned[target.topic] = target.queues
        if before == target.queues:
            return []
        came = [(queue, Reason.NEW.value) for queue in sorted_queues(target.queues - before)]
        went = [(queue, why) for queue in sorted_queues(before - target.queues)]
        kept = len(before & target.queues)
        return [Announce(report_of(self.settings.group, target, came, went, kept=kept))]

    def _on_offsets_reset(self, event: ev.OffsetsReset, _now: float) -> list[Effect]:
        queues = ", ".join(queue.path for queue in sorted_queues(event.offsets))
        text = (
            f"group {self.settings.group}: offsets of {queues} were reset, which changes nothing "
            "here: the user of a classic pull consumer keeps its offsets itself; have it commit "
            "the new ones"
        )
        return [Warn(f"reset {self.settings.group}", text)]

    def _on_stop_requested(self, _event: ev.StopRequested, _now: float) -> list[Effect]:
        self.passes.stop()
        given_up = [
            effect
            for topic in tuple(self._owned)
            for effect in self._give_up(topic, Trigger.STOP, Trigger.STOP.value)
        ]
        return [*given_up, Leave()]

    def _on_left(self, _event: ev.Left, _now: float) -> list[Effect]:
        self._left = True
        return [Stopped()]
