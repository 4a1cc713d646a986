"""Carries out a consumer's lock effects: one request per broker, answers as events."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.errors import GimbalError
from gimbalmq.flows import lock as flows
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.instance import ClientInstance

__all__ = ["LockCalls"]


class LockCalls:
    """The lock requests of one group's member."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        dispatch: Callable[[ev.Event], None],
        *,
        timeout_s: float,
    ) -> None:
        self._instance = instance
        self._timeout_s = timeout_s
        self._group = group
        self._dispatch = dispatch

    def _by_address(self, queues: Iterable[MessageQueue]) -> dict[str | None, list[MessageQueue]]:
        grouped: dict[str | None, list[MessageQueue]] = {}
        for queue in queues:
            master = self._instance.routes.master(queue)
            grouped.setdefault(master, []).append(queue)
        return grouped

    def lock(self, effect: fx.Lock) -> None:
        """Ask each broker for its queues."""
        epochs = dict(effect.asked)
        for address, queues in self._by_address(epochs).items():
            asked = tuple((queue, epochs[queue]) for queue in queues)
            sent_at = self._instance.driver.now().at_s
            if address is None or not self._instance.registrations.has(address, self._group):
                # A lock is asked for only where this member is listed: others judge by that.
                self._dispatch(ev.LockAnswered(asked, None, sent_at, "not registered"))
                continue
            self._instance.driver.spawn(
                flows.lock(address, self._group, self._instance.client_id, queues, self._timeout_s),
                functools.partial(self._locked, asked, sent_at),
            )

    def _locked(
        self,
        asked: tuple[tuple[MessageQueue, int], ...],
        sent_at: float,
        result: frozenset[MessageQueue] | GimbalError,
    ) -> None:
        if isinstance(result, GimbalError):
            self._dispatch(ev.LockAnswered(asked, None, sent_at, str(result)))
        else:
            self._dispatch(ev.LockAnswered(asked, result, sent_at))

    def unlock(self, effect: fx.Unlock) -> None:
        """Give one lock back."""
        queue, epoch = effect.queue, effect.epoch
        address = self._instance.routes.master(queue)
        if address is None:
            self._dispatch(ev.Unlocked(queue, epoch))
            return
        self._instance.driver.spawn(
            flows.unlock(address, self._group, self._instance.client_id, [queue], self._timeout_s),
            lambda _result: self._dispatch(ev.Unlocked(queue, epoch)),
        )

    def take_over(self, effect: fx.TakeOver) -> None:
        """Unlock in the name of the dead."""
        dead = ", ".join(f"'{member}'" for member in sorted(effect.members))
        self._instance.warn(
            f"take over {self._group} {dead}",
            f"group {self._group}: taking the locks of {dead}, which no broker lists any more, off "
            f"{len(effect.queues)} queues",
        )
        addresses = {
            address: queues
            for address, queues in self._by_address(effect.queues).items()
            if address is not None
        }
        self._instance.driver.spawn(
            flows.unlock_for(addresses, self._group, effect.members, self._timeout_s),
            lambda _result: self._dispatch(ev.TakenOver(effect.queues)),
        )
