"""What a member tells of its queues: a change when it is decided, and once more when it is done.

Decides what a report says, and when all queues of a change have come and gone. Must not know why
they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gimbalmq.core.consumer.context import Context
from gimbalmq.core.consumer.effects import Announce, Moved, QueueMove, RebalanceReport, Settled
from gimbalmq.core.consumer.held import HeldQueue
from gimbalmq.core.consumer.passes import Target
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["Reports", "report_of"]

#: A queue, and why it comes or goes.
Why = tuple[MessageQueue, str]


def report_of(
    group: str, target: Target, acquired: Sequence[Why], revoked: Sequence[Why], *, kept: int
) -> RebalanceReport:
    """A change of one topic's queues."""
    moves = (*acquired, *revoked)
    return RebalanceReport(
        group=group,
        trigger=target.trigger,
        members=target.members,
        strategy=target.strategy,
        acquired=tuple(queue for queue, _ in acquired),
        revoked=tuple(queue for queue, _ in revoked),
        kept=kept,
        reasons=tuple(sorted({why for _, why in moves})),
        topic=target.topic,
        all_queues=tuple(sorted_queues(target.all_queues or target.queues)),
        mine=tuple(sorted_queues(target.queues)),
        moves=moves,
    )


class _Change(msgspec.Struct):
    """A change that was announced, and how far it has come."""

    report: RebalanceReport
    #: What has not come yet (True) or not gone (False), by acquisition.
    awaited: set[tuple[int, bool]]
    reasons: dict[MessageQueue, str]
    done: list[QueueMove] = []


class Reports:
    """The changes of one member's queues."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._group = context.settings.group
        #: Changes that are not done, by what they wait for.
        self._open: dict[tuple[int, bool], _Change] = {}

    def decided(
        self,
        target: Target,
        acquired: Sequence[tuple[HeldQueue, str]],
        revoked: Sequence[tuple[HeldQueue, str]],
        *,
        kept: int,
    ) -> None:
        """Announce a change; queues that are given up before they came are awaited no longer."""
        for held, _why in revoked:
            self._settle((held.epoch, True))
        report = report_of(self._group, target, _by_queue(acquired), _by_queue(revoked), kept=kept)
        awaited = {(held.epoch, True) for held, _ in acquired}
        awaited |= {(held.epoch, False) for held, _ in revoked}
        change = _Change(report, awaited, dict(report.moves))
        self._open |= dict.fromkeys(awaited, change)
        self._context.out.append(Announce(report))

    def came(self, held: HeldQueue, now: float) -> None:
        """A queue was located: from now on it is pulled."""
        self._moved(held, now - held.held_since, acquired=True, owned=True)

    def went(self, held: HeldQueue, now: float) -> None:
        """A queue is no longer in hand, whether it was ever owned or not."""
        self._settle((held.epoch, True))
        owned = held.process is not None
        self._moved(held, now - held.released_at, acquired=False, owned=owned)

    def _moved(self, held: HeldQueue, pause_s: float, *, acquired: bool, owned: bool) -> None:
        key = held.epoch, acquired
        change = self._open.get(key)
        why = held.reason if change is None else change.reasons[held.queue]
        move = QueueMove(self._group, held.queue, acquired, pause_s, why)
        if owned:
            self._context.out.append(Moved(move))
        if change is not None:
            change.done.append(move)
            self._settle(key)

    def _settle(self, key: tuple[int, bool]) -> None:
        change = self._open.pop(key, None)
        if change is None:
            return
        change.awaited.discard(key)
        if change.done and not change.awaited:
            report = msgspec.structs.replace(change.report, done=tuple(change.done))
            self._context.out.append(Settled(report))


def _by_queue(some: Iterable[tuple[HeldQueue, str]]) -> tuple[Why, ...]:
    return tuple((held.queue, why) for held, why in some)
