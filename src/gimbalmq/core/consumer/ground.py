"""On what ground a member shares out queues: all inputs of a pass, and what follows from them.

A pass takes its own share from it; a tool that asks why a queue is where it is gets its answer from
the same value, so that the two cannot differ. Decides which strategy the group uses, which queues
are one pot, and what would follow if members left. Must not know when passes run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from gimbalmq.core.allocation import Snapshot, Strategy, assign, explain, strategy_named
from gimbalmq.core.allocation.base import BuiltIn
from gimbalmq.core.identity import (
    agreed_rejoin,
    agreed_strategy,
    allocation_members,
    capability,
)
from gimbalmq.errors import AllocationError
from gimbalmq.model.java import sorted_as_java
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.sharing import MemberAnswer, Move, Reason, Sharing, WithoutMembers

__all__ = ["Ground", "members_digest", "moves_between"]

_RETRY_TOPIC_PREFIX = "%RETRY%"


class Ground(msgspec.Struct, frozen=True):
    """What one member knows of its group when it shares out queues.

    listed: The members of the list that it believes; empty before the first.
    waits: Those that are gone and counted all the same, and the seconds that are left for each.
    queues: By topic; None while a route is not known.
    forced: Use the wanted strategy whatever the members say: for what-if questions.
    """

    group: str
    client_id: str
    wanted: Strategy
    queues: Mapping[str, frozenset[MessageQueue] | None]
    listed: tuple[str, ...] = ()
    waits: Mapping[str, float] = {}
    versions: Mapping[str, int] = {}
    paused: bool = False
    forced: bool = False

    @property
    def counted(self) -> tuple[str, ...]:
        """Those among whom queues are shared out."""
        return tuple(sorted_as_java((*self.listed, *self.waits))) if self.waits else self.listed

    def strategy(self) -> tuple[Strategy, str]:
        """What to share out with, and why that is not the wanted strategy ("" when it is)."""
        if self.forced:
            return self.wanted, ""
        found = agreed_strategy(self.listed, self.wanted.name)
        wanted = found.strategy == self.wanted.name
        return self.wanted if wanted else strategy_named(found.strategy), found.reason

    def pot(self, topic: str, strategy: Strategy) -> frozenset[MessageQueue] | None:
        """The queues that are one pot with this topic's; None while one of them is unknown.

        A strategy that looks across topics needs all of them, or members with different routes
        would compute different owners. The retry topic, which comes and goes with its group, is
        always a pot of its own.
        """
        if not getattr(strategy, "cross_topic", False) or topic.startswith(_RETRY_TOPIC_PREFIX):
            return self.queues.get(topic)
        pot: set[MessageQueue] = set()
        for name, known in self.queues.items():
            if name.startswith(_RETRY_TOPIC_PREFIX):
                continue
            if known is None:
                return None
            pot |= known
        return frozenset(pot)

    def shares(
        self, strategy: Strategy, queues: Iterable[MessageQueue]
    ) -> dict[str, tuple[MessageQueue, ...]]:
        """Share a pot out; what a strategy of the user's raises becomes an AllocationError."""
        try:
            return assign(strategy, Snapshot.of(self.group, queues, self.counted))
        except AllocationError:
            raise
        except Exception as error:
            raise AllocationError(
                f"strategy {strategy.name} failed with {type(error).__name__}: {error}"
            ) from error

    # ---- for those who ask ---------------------------------------------------------------------

    def sharing(self) -> Sharing:
        """By what it shares out, in short."""
        mine = capability(self.client_id)
        waits_at_all = mine is not None and mine.rejoin_grace_s is not None and self.listed
        strategy, reason = self.strategy()
        return Sharing(
            strategy=strategy.name if self.listed else "",
            wanted=self.wanted.name,
            reason=reason,
            listed=members_digest(self.listed) if self.listed else "",
            waits={member: round(left_s, 3) for member, left_s in self.waits.items()},
            no_waiting=agreed_rejoin(self.listed, self.client_id) if waits_at_all else "",
            weights_topic=(self.wanted.weights_topic if isinstance(self.wanted, BuiltIn) else None),
            versions=dict(self.versions),
            paused=self.paused,
        )

    def answer(self, queue: MessageQueue, without: tuple[str, ...] = ()) -> MemberAnswer:
        """Why a queue is where it is, and what would change if members left."""
        if not self.listed:
            return MemberAnswer(trouble="it has not seen a list of the group's members yet")
        try:
            reason = self._reason(queue)
            later = self._without(queue, without) if without else None
        except AllocationError as error:
            return MemberAnswer(trouble=str(error))
        return MemberAnswer(reason, later)

    def _reason(self, queue: MessageQueue) -> Reason:
        strategy, _ = self.strategy()
        snapshot = Snapshot.of(self.group, self._known_pot(queue.topic, strategy), self.counted)
        try:
            found = explain(strategy, snapshot, queue)
        except AllocationError:
            raise
        except Exception as error:
            raise AllocationError(
                f"strategy {strategy.name} failed with {type(error).__name__}: {error}"
            ) from error
        return Reason(found.owner, strategy.name, found.data, found.sentence)

    def _known_pot(self, topic: str, strategy: Strategy) -> frozenset[MessageQueue]:
        pot = self.pot(topic, strategy)
        if pot is None:
            what = f"the queues of topic '{topic}', or of one that is shared out with it,"
            raise AllocationError(f"{what} are not known to '{self.client_id}' yet")
        return pot

    def _without(self, queue: MessageQueue, leaving: tuple[str, ...]) -> WithoutMembers:
        later = msgspec.structs.replace(
            self,
            listed=allocation_members(one for one in self.listed if one not in leaving),
            waits={one: left_s for one, left_s in self.waits.items() if one not in leaving},
        )
        if not later.listed:
            raise AllocationError(
                f"without {', '.join(leaving)} nobody is left to own {queue.path}"
            )
        reason = later._reason(queue)  # noqa: SLF001 - the copy is of this class
        _, fallen_back = later.strategy()
        return WithoutMembers(
            members=leaving,
            owner=reason.owner,
            sentence=reason.sentence,
            moves=moves_between(self.owners(), later.owners()),
            strategy=reason.rule,
            reason=fallen_back,
            waits_s=self._kept_for(leaving),
        )

    def _kept_for(self, leaving: tuple[str, ...]) -> float | None:
        """How long the group would go on as if they were there; None when not at all."""
        mine = capability(self.client_id)
        if (
            mine is None
            or mine.rejoin_grace_s is None
            or agreed_rejoin(self.listed, self.client_id)
        ):
            return None
        # Those that are gone already have only the rest of their time.
        return max(self.waits.get(one, mine.rejoin_grace_s) for one in leaving)

    def owners(self) -> dict[MessageQueue, str]:
        """Who should have each queue whose topic is known."""
        strategy, _ = self.strategy()
        owners: dict[MessageQueue, str] = {}
        for topic, queues in self.queues.items():
            if not queues or queues <= owners.keys():
                continue
            if pot := self.pot(topic, strategy):
                shares = self.shares(strategy, pot)
                owners |= {queue: member for member, share in shares.items() for queue in share}
        return owners


def moves_between(
    before: Mapping[MessageQueue, str], after: Mapping[MessageQueue, str]
) -> tuple[Move, ...]:
    """What changes hands, in the order of the queues."""
    return tuple(
        Move(queue.path, before.get(queue), after.get(queue))
        for queue in sorted_queues(before.keys() | after.keys())
        if before.get(queue) != after.get(queue)
    )


def members_digest(members: Iterable[str]) -> str:
    """A short text that differs when the ids do, whatever their order.

    >>> members_digest(["a", "b"]) == members_digest(["b", "a"]) != members_digest(["a"])
    True
    """
    text = "\n".join(sorted(members)).encode("utf-8", "surrogatepass")
    return hashlib.blake2s(text, digest_size=8).hexdigest()
