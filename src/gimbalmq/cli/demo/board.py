"""What is known of the demo so far: written by many threads, read by the screen and the checks.

Holds facts and counts them. Reads no clock and starts nothing; `changes` says what they mean.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from gimbalmq import balance
from gimbalmq.cli.demo.changes import Change, Delivery, Holding, Kind, Outcome, judge_change
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["STRATEGY", "Board", "Fate", "MemberView", "Offsets", "Traffic", "View"]

Fate = Literal["starting", "member", "killed", "left"]

#: How the group shares its queues.
STRATEGY: Final = "AVG"


class Offsets(msgspec.Struct, frozen=True):
    """How far a group has come in a queue, and where the queue ends."""

    committed: int
    maximum: int

    @property
    def lag(self) -> int:
        """Messages that the group has not acknowledged to the broker."""
        return max(0, self.maximum - self.committed)


class MemberView(msgspec.Struct, frozen=True):
    """A member as it is now."""

    name: str
    language: str
    client_id: str
    fate: Fate
    queues: frozenset[MessageQueue]
    received: int


class Traffic(msgspec.Struct, frozen=True):
    """Messages sent and consumed. `unanswered` sends may or may not have been stored."""

    sent: int
    unanswered: int
    consumed: int
    deliveries: int
    lost: int

    @property
    def unacknowledged(self) -> int:
        """Messages consumed whose send was not acknowledged: of those without an answer."""
        return self.consumed - (self.sent - self.lost)

    @property
    def duplicates(self) -> int:
        """Deliveries of what had been delivered before."""
        return self.deliveries - self.consumed


class View(msgspec.Struct, frozen=True):
    """Everything at one moment."""

    queues: tuple[MessageQueue, ...]
    members: tuple[MemberView, ...]
    sent: Mapping[MessageQueue, int]
    offsets: Mapping[MessageQueue, Offsets]
    outcomes: tuple[Outcome, ...]
    traffic: Traffic
    #: The next offset that Spark's stream reads of each queue; empty before its first batch.
    streamed: Mapping[MessageQueue, int] = {}


class _Member(msgspec.Struct):
    language: str
    client_id: str = ""
    fate: Fate = "starting"
    queues: frozenset[MessageQueue] = frozenset()
    received: int = 0


class Board:
    """The facts; every method may be called from any thread."""

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = tuple(sorted_queues(queues))
        self._lock = threading.Lock()
        self._members: dict[str, _Member] = {}
        self._holdings: list[Holding] = []
        self._deliveries: list[Delivery] = []
        self._triggers: list[tuple[float, str, str]] = []
        self._sent_by_queue: Counter[MessageQueue] = Counter()
        self._unanswered = 0
        self._missing: set[str] = set()
        self._received: Counter[str] = Counter()
        self._offsets: dict[MessageQueue, Offsets] = {}
        self._streamed: dict[MessageQueue, int] = {}
        self._outcomes: list[Outcome] = []
        self._change: Change | None = None

    # ---- messages ----------------------------------------------------------------------------

    def sent(self, key: str, queue: MessageQueue) -> None:
        """A broker has acknowledged a message."""
        with self._lock:
            self._sent_by_queue[queue] += 1
            # A consumer may be told of a message before its producer is.
            if key not in self._received:
                self._missing.add(key)

    def unanswered(self) -> None:
        """A send failed; nobody knows whether the message was stored."""
        with self._lock:
            self._unanswered += 1

    def received(self, name: str, key: str, queue: MessageQueue, at: float) -> None:
        """A member got a message."""
        with self._lock:
            self._received[key] += 1
            self._missing.discard(key)
            self._members[name].received += 1
            self._deliveries.append(Delivery(at, name, queue))

    def reached(self, offsets: Mapping[MessageQueue, Offsets]) -> None:
        """What the brokers say about the group's progress."""
        with self._lock:
            self._offsets = dict(offsets)

    def streamed(self, offsets: Mapping[MessageQueue, int]) -> None:
        """How far Spark's stream is."""
        with self._lock:
            self._streamed = dict(offsets)

    # ---- members -----------------------------------------------------------------------------

    def joining(self, name: str, language: str, client_id: str, at: float) -> None:
        """A member begins to join: a change."""
        with self._lock:
            self._begin("join", name, at)
            self._members[name] = _Member(language, client_id)

    def owns(self, name: str, queues: Iterable[MessageQueue], at: float) -> None:
        """A member says what it holds."""
        with self._lock:
            member = self._members[name]
            # Words of a member that is gone by now, still on their way.
            if member.fate in {"starting", "member"}:
                member.fate = "member"
                member.queues = frozenset(queues)
                self._holdings.append(Holding(at, name, member.queues))

    def gone(self, name: str, fate: Literal["killed", "left"], at: float) -> None:
        """A member is no longer one: a change."""
        with self._lock:
            self._begin("kill" if fate == "killed" else "leave", name, at)
            member = self._members[name]
            member.fate, member.queues = fate, frozenset()
            self._holdings.append(Holding(at, name, frozenset()))

    def rebalanced(self, name: str, trigger: str, at: float) -> None:
        """A member changed what it holds because of `trigger`."""
        with self._lock:
            self._triggers.append((at, name, trigger))

    # ---- changes -----------------------------------------------------------------------------

    def outcome(self, now: float) -> Outcome | None:
        """The change at hand, judged by what is known now."""
        with self._lock:
            return None if self._change is None else self._judge(self._change, now)

    def end(self, now: float) -> None:
        """No further change comes: judge the last one for good."""
        with self._lock:
            if self._change is not None:
                self._outcomes.append(self._judge(self._change, now))
                self._change = None

    def target(self) -> dict[MessageQueue, str]:
        """Who should own each queue, by the group's strategy and the members there are."""
        with self._lock:
            return self._target()

    def _begin(self, kind: Kind, member: str, at: float) -> None:
        # Before anything else of the new change: the old one is judged by the members it had.
        if self._change is not None:
            self._outcomes.append(self._judge(self._change, at))
        self._change = Change(kind, member, at)
        self._deliveries.clear()

    def _target(self) -> dict[MessageQueue, str]:
        names = {
            member.client_id: name
            for name, member in self._members.items()
            if member.fate in {"starting", "member"}
        }
        if not names:
            return {}
        shares = balance.allocate(STRATEGY, queues=self._queues, members=list(names))
        return {queue: names[client_id] for client_id, held in shares.items() for queue in held}

    def _judge(self, change: Change, until: float) -> Outcome:
        return judge_change(
            change,
            holdings=self._holdings,
            deliveries=self._deliveries,
            target=self._target(),
            until=until,
            trigger=self._trigger(change),
        )

    def _trigger(self, change: Change) -> str | None:
        """What made the others look; what the member itself says only when it was alone."""
        since = [one for one in self._triggers if one[0] >= change.began_at]
        others = [one for one in since if one[1] != change.member]
        return min(others or since, default=(0.0, "", None))[2]

    # ---- reading -----------------------------------------------------------------------------

    def view(self, now: float) -> View:
        """Everything as it is now, the change at hand last among the outcomes."""
        with self._lock:
            open_one = [] if self._change is None else [self._judge(self._change, now)]
            return View(
                queues=self._queues,
                members=tuple(
                    MemberView(
                        name, one.language, one.client_id, one.fate, one.queues, one.received
                    )
                    for name, one in self._members.items()
                ),
                sent=dict(self._sent_by_queue),
                offsets=dict(self._offsets),
                outcomes=(*self._outcomes, *open_one),
                traffic=Traffic(
                    sent=self._sent_by_queue.total(),
                    unanswered=self._unanswered,
                    consumed=len(self._received),
                    deliveries=self._received.total(),
                    lost=len(self._missing),
                ),
                streamed=dict(self._streamed),
            )
