"""Carries out a consumer's offset effects: where a queue starts, what is stored, the hand-over.

Decides whether a queue is new to a topic that was known before, because such a queue is read from
its start. Where offsets are kept is the `OffsetKeeper`'s business, which one counts the machine's.
"""

from __future__ import annotations

from collections.abc import Callable

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.offsets import OffsetKeeper

__all__ = ["OffsetCalls"]


class OffsetCalls:
    """The offset requests of one group's member; `all_found` is called when none is looked for."""

    def __init__(
        self,
        instance: ClientInstance,
        keeper: OffsetKeeper,
        dispatch: Callable[[ev.Event], None],
        *,
        all_found: Callable[[], None],
    ) -> None:
        self._instance = instance
        self._keeper = keeper
        self._dispatch = dispatch
        self._all_found = all_found
        #: The queues of each topic as it was first known; others are new.
        self._first_queues: dict[str, frozenset[MessageQueue]] = {}
        self._finding = 0

    @property
    def finding(self) -> bool:
        """Whether offsets are being looked for."""
        return self._finding > 0

    def topic_known(self, topic: str, queues: frozenset[MessageQueue]) -> None:
        """Note the queues of a topic; the first time counts."""
        self._first_queues.setdefault(topic, queues)

    def find(self, effect: fx.FindOffset) -> None:
        """Look for the offset at which a queue starts."""
        queue, epoch = effect.queue, effect.epoch
        self._finding += 1

        def found(result: int | GimbalError) -> None:
            self._finding -= 1
            if isinstance(result, GimbalError):
                self._dispatch(ev.OffsetFound(queue, epoch, None, str(result)))
            else:
                self._dispatch(ev.OffsetFound(queue, epoch, result))
            if not self._finding:
                self._all_found()

        first = self._first_queues.get(queue.topic, frozenset())
        new = bool(first) and queue not in first
        self._keeper.find(queue, self._instance.routes.master(queue), found, new=new)

    def commit(self, effect: fx.Commit) -> None:
        """Store an offset, and wait for nothing."""
        master = self._instance.routes.master(effect.queue)
        self._keeper.commit(effect.queue, master, effect.offset)

    def hand_over(self, effect: fx.HandOver) -> None:
        """Store the last offset of a queue for whoever is next, and say when it is stored."""
        queue, epoch = effect.queue, effect.epoch

        def stored(result: GimbalError | None) -> None:
            self._dispatch(ev.HandedOver(queue, epoch, "" if result is None else str(result)))

        master = self._instance.routes.master(queue)
        self._keeper.hand_over(queue, master, effect.offset, stored, force=effect.force)
