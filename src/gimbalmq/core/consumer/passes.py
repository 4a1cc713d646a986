"""When to rebalance, and what the member list makes of the queues.

A pass asks one broker for the group's members and computes every topic's target from that one
list. Passes are requested by triggers, gathered over a short gap, and repeated soon when something
was missing: the list, a route, this member itself, the offset of a queue. How soon follows from how
often the same has been missing in a row. A pass that cannot decide keeps what is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gimbalmq.core.allocation import Strategy
from gimbalmq.core.allocation.base import BuiltIn
from gimbalmq.core.consumer.absence import Absence
from gimbalmq.core.consumer.back_off import BackOff
from gimbalmq.core.consumer.effects import (
    AskAbsent,
    Effect,
    ListMembers,
    RefreshRoute,
    RenewHeartbeat,
    SetTimer,
    Warn,
)
from gimbalmq.core.consumer.events import AbsentTold, MembersListed, TimerName, Trigger, WeightsRead
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.core.identity import (
    allocation_members,
    capability,
    is_java_strategy,
    repeated_ids,
    shared_id_warning,
)
from gimbalmq.errors import AllocationError
from gimbalmq.model.java import sorted_as_java
from gimbalmq.model.queue import MessageQueue

__all__ = ["PassPlanner", "Target"]

#: How often a doubtful member list is asked for again before it is believed.
_DOUBTS_MAX = 2
_RETRY_TOPIC_PREFIX = "%RETRY%"
#: What stands in the place of a strategy where every member has everything.
_BROADCASTING = "BROADCASTING"
#: The cause of a pass that could not begin for want of a list to believe.
_MEMBERS = "the member list"


class Target(msgspec.Struct, frozen=True):
    """What this member should own of one topic, and on what ground."""

    topic: str
    queues: frozenset[MessageQueue]
    trigger: Trigger
    members: tuple[str, ...]
    strategy: str
    #: Every queue of the topic.
    all_queues: frozenset[MessageQueue] = frozenset()


class PassPlanner:
    """Gathers triggers into passes and member lists into targets."""

    def __init__(
        self, settings: ConsumerSettings, strategy: Strategy, topics: Iterable[str]
    ) -> None:
        self._settings = settings
        self._strategy = strategy
        self._queues: dict[str, frozenset[MessageQueue] | None] = dict.fromkeys(topics)
        self._wanted: dict[str, frozenset[MessageQueue]] = {}
        self._trigger = Trigger.START
        self._last_pass_at = float("-inf")
        #: The member list was asked for and has not come yet.
        self._listing = False
        #: A trigger that came while a list was on its way: that list may be too old.
        self._again: Trigger | None = None
        #: When the timer of the next gathered or repeated pass runs out, and what that is for.
        self._planned_at = float("inf")
        self._planned_for = Trigger.START
        self._back_off = BackOff(settings.rebalance_retry_s, settings.rebalance_interval_s)
        self._doubts = 0
        #: Ids that the list that was believed last names more than once.
        self.repeated: tuple[str, ...] = ()
        #: No pass before the first heartbeat (START), and none after the stop.
        self._active = False
        #: The user paused the whole consumer: it keeps what it has until it is resumed.
        self._paused = False
        #: Who is gone and may come back, where that is waited for.
        self._absence = (
            None
            if settings.rejoin_grace_s is None
            else Absence(settings.client_id, settings.rejoin_grace_s)
        )
        #: The members of the list that was believed last, and what was shared out by then.
        self._listed: tuple[str, ...] = ()
        self._used = ""
        #: Of the published weights that are used, by topic.
        self._versions: Mapping[str, int] = {}

    def wants(self, queue: MessageQueue) -> bool:
        """Whether the latest target contains the queue."""
        return queue in self._wanted.get(queue.topic, frozenset())

    def stop(self) -> None:
        """No more passes."""
        self._active = False

    def pause(self) -> None:
        """No pass until `resume`."""
        self._paused = True

    def resume(self, now: float) -> list[Effect]:
        """Find out at once what changed meanwhile."""
        was_paused, self._paused = self._paused, False
        return self.request(Trigger.RESUME, now) if was_paused else []

    @property
    def decided(self) -> bool:
        """Whether a pass has said what this member should own."""
        return bool(self._wanted)

    def present(self, topic: str, trigger: Trigger, without: frozenset[MessageQueue]) -> Target:
        """What this member should own of a topic by the last pass, but for some queues."""
        mine = self._wanted.get(topic, frozenset()) - without
        known = self._queues.get(topic) or frozenset()
        return Target(topic, mine, trigger, self._listed, self._used, known)

    def located(self, queue: MessageQueue) -> None:
        """A queue that this member should own is found: its next trouble is tried again soon."""
        self._back_off.settled(queue)

    def add_topic(self, topic: str) -> None:
        """Share out one more topic, once its route is known."""
        self._queues.setdefault(topic, None)

    def remove_topic(self, topic: str) -> None:
        """Share out a topic no longer."""
        self._queues.pop(topic, None)
        self._wanted.pop(topic, None)
        self._back_off.settled(topic)
        self._forget_queues(topic)

    def _forget_queues(self, topic: str) -> None:
        """Queues that are not wanted any more are no trouble."""
        for cause in self._back_off.failing():
            if isinstance(cause, MessageQueue) and cause.topic == topic and not self.wants(cause):
                self._back_off.settled(cause)

    # ---- when --------------------------------------------------------------------------------

    def request(self, trigger: Trigger, now: float) -> list[Effect]:
        """Ask for a pass; bursts of requests become one."""
        self._active = self._active or trigger is Trigger.START
        if self._paused or not (self._active and self._queues):
            return []
        if self._listing:
            self._again = trigger
            return []
        wait_s = self._last_pass_at + self._settings.rebalance_gap_s - now
        if wait_s > 0:
            return self._later(trigger, wait_s, now)
        return self._begin(trigger, now)

    def not_located(self, queue: MessageQueue, now: float) -> list[Effect]:
        """A queue that this member should own has no offset yet: plan to try again."""
        return self._retry(queue, now)

    def _retry(
        self, cause: str | MessageQueue, now: float, trigger: Trigger = Trigger.RETRY
    ) -> list[Effect]:
        pause_s = self._back_off.failed(cause)
        wanted = self._active or self._settings.manual
        return self._later(trigger, pause_s, now) if wanted else []

    def due(self, now: float) -> list[Effect]:
        """The timer of a gathered or repeated pass ran out."""
        self._planned_at = float("inf")
        return self.request(self._planned_for, now)

    def _later(self, trigger: Trigger, delay_s: float, now: float) -> list[Effect]:
        if self._planned_at <= now + delay_s:
            return []  # a pass is planned that soon already
        self._planned_for = trigger
        self._planned_at = now + delay_s
        return [SetTimer(TimerName.NEXT_PASS, delay_s)]

    def _begin(self, trigger: Trigger, now: float) -> list[Effect]:
        self._trigger = trigger
        self._listing = True
        self._again = None
        self._last_pass_at = now
        return [ListMembers()]

    # ---- what --------------------------------------------------------------------------------

    def learn_route(self, topic: str, queues: frozenset[MessageQueue], now: float) -> list[Effect]:
        """Note the queues of a topic; a change asks for a pass at once (Java waits for 20 s)."""
        if topic not in self._queues or self._queues[topic] == queues:
            return []
        self._queues[topic] = queues
        return self.request(Trigger.ROUTE, now)

    def learn_weights(self, event: WeightsRead, now: float) -> list[Effect]:
        """Use other published weights from now on; asks for a pass at once."""
        if not isinstance(self._strategy, BuiltIn) or self._strategy.weights_topic is None:
            return []
        self._strategy = self._strategy.with_weights(event.weights)
        self._versions = event.versions
        return self.request(Trigger.WEIGHTS, now)

    def members_listed(self, event: MembersListed, now: float) -> tuple[list[Target], list[Effect]]:
        """Turn a member list into targets, and say what to do next."""
        self._listing = False
        if self._paused or not self._active:
            return [], []
        group = self._settings.group
        if event.members is None:
            text = f"group {group}: no member list ({event.reason}); current queues are kept"
            return [], [Warn(f"members {group}", text), *self._again_soon(now)]
        members, effects = self._believe(sorted_as_java(event.members))
        if members is None:
            return [], [*effects, *self._again_soon(now)]
        self._back_off.settled(_MEMBERS)
        waits, waiting = self._absent_members(members, now)
        effects += waiting
        if waits is None:
            return [], effects
        self._listed = members
        ground = self._ground(waits)
        effects += self._strategies_differ(members)
        effects += self._lease_ignored(members)
        strategy, reason = ground.strategy()
        if reason and not self._settings.broadcasting:
            effects.append(Warn(f"strategy {group}", reason))
        self._used = _BROADCASTING if self._settings.broadcasting else strategy.name
        targets, missing = self._targets(ground, strategy, effects)
        effects += self._next_pass(missing, now)
        return targets, effects

    def _targets(
        self, ground: Ground, strategy: Strategy, effects: list[Effect]
    ) -> tuple[list[Target], list[str]]:
        """What this member should own, and the topics of which that cannot be said."""
        targets: list[Target] = []
        missing: list[str] = []
        for topic, queues in self._queues.items():
            # As in Java: trouble of a retry topic is quiet, and no reason to try again soon.
            quiet = topic.startswith(_RETRY_TOPIC_PREFIX)
            try:
                target = self._target(topic, queues, ground, strategy, effects)
            except AllocationError as error:
                target = None
                if not quiet:
                    group = self._settings.group
                    text = f"group {group}, topic {topic}: {error}; current queues are kept"
                    effects.append(Warn(f"allocate {topic}", text))
            if target is not None:
                self._decide(target)
                targets.append(target)
            elif not quiet:
                missing.append(topic)
        return targets, missing

    def _decide(self, target: Target) -> None:
        self._wanted[target.topic] = target.queues
        self._back_off.settled(target.topic)
        self._forget_queues(target.topic)

    def ground(self, now: float) -> Ground:
        """What queues are shared out by at this moment, for those who ask why."""
        absence = self._absence
        counts = absence is not None and not absence.asking and not absence.disagreement()
        return self._ground(absence.waited_for(now) if absence is not None and counts else {})

    def _ground(self, waits: Mapping[str, float]) -> Ground:
        return Ground(
            self._settings.group,
            self._settings.client_id,
            self._strategy,
            dict(self._queues),
            self._listed,
            waits,
            self._versions,
            self._paused,
        )

    def _absent_members(
        self, members: tuple[str, ...], now: float
    ) -> tuple[dict[str, float] | None, list[Effect]]:
        """Those to count as if they were there, and the seconds left for each.

        None while this member, new to the group, asks others whom they wait for.
        """
        absence = self._absence
        if absence is None:
            return {}, []
        absence.listed(members, now)
        if asked := absence.question(members):
            return None, [AskAbsent(asked)]
        if absence.asking:
            return None, []
        group = self._settings.group
        if why := absence.disagreement():
            return {}, [Warn(f"rejoin {group}", f"group {group}: {why}")]
        waited = absence.waited_for(now)
        if not waited:
            return {}, []
        names = ", ".join(f"'{member}'" for member in waited)
        text = (
            f"group {group}: the queues of {names} wait for it to come back, for up to "
            f"{max(waited.values()):.1f} s more (rejoin_grace_s)"
        )
        return waited, [
            Warn(f"absent {group}", text),
            *self._later(Trigger.ABSENCE, min(waited.values()), now),
        ]

    def absent_told(self, event: AbsentTold, now: float) -> list[Effect]:
        """Another member said who is gone, or nobody could: go on."""
        if self._absence is None:
            return []
        self._absence.told(event.absent, now)
        return self.request(self._trigger, now)

    def absent(self, now: float) -> dict[str, float] | None:
        """For members that ask: for how many seconds others are gone; None: ask another one."""
        return None if self._absence is None else self._absence.known(now)

    def _strategies_differ(self, members: tuple[str, ...]) -> list[Effect]:
        """Say so when a member runs another of Java's strategies, which nobody can reconcile."""
        wanted = self._strategy.name
        if self._settings.broadcasting or not is_java_strategy(wanted):
            return []  # nothing is shared out, or `agreed_strategy` finds a common one
        for member in members:
            found = capability(member)
            if found is not None and found.strategy != wanted:
                group = self._settings.group
                text = (
                    f"group {group}: member '{member}' shares queues out by {found.strategy}, this "
                    f"one by {wanted}: some queues get two owners or none; use one strategy"
                )
                return [Warn(f"strategies {group}", text)]
        return []

    def _lease_ignored(self, members: tuple[str, ...]) -> list[Effect]:
        """Say so when a member is foreign: it takes no leases, and consumes all the same."""
        foreign = next((one for one in members if capability(one) is None), None)
        if foreign is None or not self._settings.lease or not self._settings.locking:
            return []
        group = self._settings.group
        text = (
            f"group {group}: member '{foreign}' is foreign (a Java client?) and knows no leases: a "
            "queue that moves to or from it may be consumed by both for a while; lease=True keeps "
            "only members of ours apart, so use it where all are"
        )
        return [Warn(f"lease {group}", text)]

    def _again_soon(self, now: float) -> list[Effect]:
        if self._again is not None:
            return self.request(self._again, now)
        return self._retry(_MEMBERS, now, self._trigger)

    def _next_pass(self, missing: Iterable[str], now: float) -> list[Effect]:
        effects: list[Effect] = [SetTimer(TimerName.REBALANCE, self._settings.rebalance_interval_s)]
        if self._again is not None:
            return effects + self.request(self._again, now)
        for topic in missing:
            effects += self._retry(topic, now)
        return effects

    def _believe(self, members: list[str]) -> tuple[tuple[str, ...] | None, list[Effect]]:
        """Doubt a list that lacks this member or names one twice: ask again before acting.

        A reconnect leaves a member out, or listed on two connections, for a moment. If it stays:
        without this member its queues are given up, as in Java, because the others share them
        out; with a duplicate, a group of ours allocates over the distinct ids, and a group with
        foreign members does as Java does, since otherwise a queue would get two owners.
        """
        me = self._settings.client_id
        absent = me not in members
        doubled = len(set(members)) < len(members)
        if not (absent or doubled):
            self._doubts = 0
            self.repeated = ()
            return tuple(members), []
        effects: list[Effect] = [RenewHeartbeat()] if absent else []
        self._doubts += 1
        if self._doubts <= _DOUBTS_MAX:
            return None, effects
        self.repeated = repeated_ids(members)
        if self.repeated:
            group, text = self._settings.group, shared_id_warning(self.repeated, me)
            facts = {"event": "shared client id", "group": group, "members": list(self.repeated)}
            effects.append(Warn(f"repeated {group}", f"group {group}: {text}", facts))
        return allocation_members(members), effects

    def _target(
        self,
        topic: str,
        queues: frozenset[MessageQueue] | None,
        ground: Ground,
        strategy: Strategy,
        effects: list[Effect],
    ) -> Target | None:
        if queues is None:
            effects.append(RefreshRoute(topic))
            if not topic.startswith(_RETRY_TOPIC_PREFIX):
                effects.append(
                    Warn(f"route {topic}", f"topic {topic} has no route yet; asking again")
                )
            return None
        if self._settings.broadcasting:
            return Target(topic, queues, self._trigger, ground.listed, _BROADCASTING, queues)
        together = ground.pot(topic, strategy)
        if together is None:
            return None
        share: tuple[MessageQueue, ...] = ()
        if together:
            share = ground.shares(strategy, together).get(self._settings.client_id, ())
        mine = frozenset(queue for queue in share if queue.topic == topic)
        return Target(topic, mine, self._trigger, ground.listed, strategy.name, queues)
