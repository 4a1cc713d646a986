"""Who may consume which queue in order: the lock table of one broker.

A lock belongs to a client id and lives as long as it is renewed. Java's table knows nothing else
(RebalanceLockManager), so a dead member's queues stay locked until the locks expire, and anybody
may unlock in the name of anybody. This table also remembers the connection that took a lock: it
is released when that connection closes and the id has no other, and a foreign unlock is accepted
only for an id that is not connected. `faithful` switches both off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gimbalmq.broker.effects import Channel
from gimbalmq.model.queue import MessageQueue

__all__ = ["LOCK_LIFE_MS", "LockTable"]

#: Java's `rocketmq.broker.rebalance.lockMaxLiveTime`.
LOCK_LIFE_MS: Final = 60_000


class _Lock(msgspec.Struct):
    client_id: str
    renewed_ms: int
    channel: Channel


class LockTable:
    """Locks by group and queue."""

    def __init__(self, *, life_ms: int = LOCK_LIFE_MS, faithful: bool = False) -> None:
        self._life_ms = life_ms
        self._faithful = faithful
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        channel: Channel,
        now_ms: int,
    ) -> list[MessageQueue]:
        """Take or renew locks; returns the queues that the client id now holds."""
        table = self._groups.setdefault(group, {})
        granted: list[MessageQueue] = []
        for queue in queues:
            held = table.get(queue)
            if held is None or held.client_id == client_id or self._expired(held, now_ms):
                table[queue] = _Lock(client_id, now_ms, channel)
                granted.append(queue)
        if not table:
            del self._groups[group]
        return granted

    def unlock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        own_id: bool,
        connected: bool,
    ) -> None:
        """Give up locks held by that client id; others are left alone.

        `own_id`: the request came on a connection of that id; `connected`: the id has one.
        """
        if not self._faithful and connected and not own_id:
            return
        table = self._groups.get(group, {})
        for queue in queues:
            held = table.get(queue)
            if held is not None and held.client_id == client_id:
                del table[queue]
        if not table:
            self._groups.pop(group, None)

    def channel_closed(self, channel: Channel, connections: Mapping[str, Channel]) -> None:
        """Release what the connection had taken, or leave it to another one of the same client id.

        `connections` has one for each client id that is still connected.
        """
        if self._faithful:
            return
        for group, table in list(self._groups.items()):
            for queue, held in list(table.items()):
                if held.channel is not channel:
                    continue
                if held.client_id in connections:
                    held.channel = connections[held.client_id]
                else:
                    del table[queue]
            if not table:
                del self._groups[group]

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Whether the group consumes in order here: it holds a lock that has not expired."""
        table = self._groups.get(group, {})
        return any(not self._expired(held, now_ms) for held in table.values())

    def owner(self, group: str, queue: MessageQueue, now_ms: int) -> str | None:
        """The client id that holds the lock of a queue."""
        held = self._groups.get(group, {}).get(queue)
        return None if held is None or self._expired(held, now_ms) else held.client_id

    def expire(self, now_ms: int) -> None:
        """Forget locks that nobody renewed for long, so that the table does not grow."""
        for group, table in list(self._groups.items()):
            for queue, held in list(table.items()):
                if self._expired(held, now_ms):
                    del table[queue]
            if not table:
                del self._groups[group]

    def _expired(self, held: _Lock, now_ms: int) -> bool:
        return now_ms - held.renewed_ms > self._life_ms
