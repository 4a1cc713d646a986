"""A watcher that heals an ordered group of unmodified members after one of them has died.

Carries out what `core.guard` decides: looks at the brokers' lists twice a second, releases locks
and wakes the survivors, or only says that it would.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from gimbalmq.client.admin import Admin
from gimbalmq.client.options import positive
from gimbalmq.core.guard import Decision, GroupLook, GuardMachine, GuardSettings
from gimbalmq.errors import BrokerError, ConfigurationError, TopicNotFoundError, TransportError
from gimbalmq.flows.admin_groups import GroupView
from gimbalmq.flows.admin_guard import Seen, release_locks, see_group, wake_group
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.names import check_group

__all__ = ["Deed", "GroupGuard", "GuardSettings"]

_log = logging.getLogger("gimbalmq.guard")


class Deed(msgspec.Struct, frozen=True):
    """What was decided at a moment, and whether it was done: `done` is False in a dry run.

    `kind` is `watching`, `missing`, `returned`, `release`, `wake`, `refuse` or `alive`.
    """

    at: str
    group: str
    kind: str
    members: tuple[str, ...]
    reason: str
    done: bool
    failures: dict[str, str] = {}


class GroupGuard:
    """Watches one group.

        with Admin("127.0.0.1:9876") as admin:
            GroupGuard(admin, "billing", act=True).run(print)

    Args:
        admin: Who asks the cluster; the group is one of its namespace.
        group: The group.
        act: Release locks and wake members; False only says what would be done.
        settings: Grace times.
        interval_s: Time between two looks.

    Raises:
        ConfigurationError: a grace time cannot be safe.
    """

    def __init__(
        self,
        admin: Admin,
        group: str,
        *,
        act: bool = False,
        settings: GuardSettings | None = None,
        interval_s: float = 0.5,
    ) -> None:
        self.group = check_group(group)
        self._wire_group = check_group(admin.namespace.wire(group))
        chosen = settings or GuardSettings()
        if problem := chosen.problems():
            raise ConfigurationError(problem)
        self._admin = admin
        self._act = act
        self._interval_s = positive("interval_s", interval_s)
        self._machine = GuardMachine(chosen)
        self._topics: frozenset[str] = frozenset()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End `run`, from another thread or a signal handler."""
        self._stopped.set()

    def run(self, told: Callable[[Deed], object], *, duration_s: float | None = None) -> None:
        """Watch until `stop`, or for some time; tells every decision when it is made."""
        end = float("inf") if duration_s is None else time.monotonic() + duration_s
        while not self._stopped.is_set() and time.monotonic() < end:
            for deed in self.step():
                told(deed)
            self._stopped.wait(min(self._interval_s, max(0.0, end - time.monotonic())))

    def step(self) -> list[Deed]:
        """Look once and do what follows from it."""
        try:
            seen = self._admin.run(
                lambda servers, limit: see_group(servers, self._wire_group, limit)
            )
        except TransportError as error:
            # No name server, so nobody can be asked: the machine must know that, and start over.
            _log.warning("group %s cannot be watched: %s", self.group, error)
            decisions = self._machine.look(GroupLook(()), time.monotonic())
            return [self._deed(one) for one in decisions]
        self._topics |= seen.view.topics
        now = time.monotonic()
        decisions = self._machine.look(seen.look, now)
        if self._act and self._machine.waits_for_queues:
            complete = self._all_held(seen)
            decisions += self._machine.queues_held(complete=complete, now=now)
        return [self._deed(one) for one in decisions]

    def _deed(self, decision: Decision) -> Deed:
        acting = self._act and decision.kind in {"release", "wake"}
        failures: dict[str, str] = {}
        if acting:
            failures = self._carry_out(decision)
        level = logging.WARNING if decision.kind in {"release", "alive"} else logging.INFO
        _log.log(
            level,
            "group %s: %s%s %s: %s",
            self.group,
            decision.kind,
            "" if acting or decision.kind not in {"release", "wake"} else " (dry run)",
            ", ".join(decision.members),
            decision.reason,
        )
        return Deed(
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            self.group,
            decision.kind,
            decision.members,
            decision.reason,
            acting and not failures,
            failures,
        )

    def _carry_out(self, decision: Decision) -> dict[str, str]:
        if decision.kind == "wake":
            return self._admin.run(
                lambda servers, limit: wake_group(servers, self._wire_group, limit)
            )
        return self._admin.run(
            lambda servers, limit: release_locks(
                servers, self._wire_group, self._topics, decision.members, limit
            )
        )

    def _all_held(self, seen: Seen) -> bool:
        try:
            held = self._admin.assignments(self.group)
        except (BrokerError, TransportError):
            return False
        taken = {queue for share in held.values() for queue in share}
        return _queues_of(self._admin, seen.view) <= taken


def _queues_of(admin: Admin, view: GroupView) -> set[MessageQueue]:
    queues: set[MessageQueue] = set()
    for topic in view.topics:
        if topic.startswith("%"):
            continue
        try:
            queues |= admin.route(topic).subscribe_queues()
        except TopicNotFoundError:
            continue
    return queues
