"""What a diagnosis says: findings, and from where on something counts as a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from gimbalmq.core.group_facts import GroupFacts
from gimbalmq.model.queue import MessageQueue, sorted_queues

__all__ = ["Diagnosis", "Finding", "Limits", "Rule", "Severity", "counted", "finding"]

Severity = Literal["error", "warning"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From where on something counts as a fault."""

    #: A member with this many times the mean share, and two queues more, has too many.
    skew_factor: float = 2.0
    #: A queue that alone has more than half of the lag is named from this lag on.
    hot_queue_lag: int = 1000
    broker_answer_s: float = 1.0
    broker_behind_bytes: int = 16 << 20
    broker_waiting_s: float = 1.0


class Finding(msgspec.Struct, frozen=True):
    """One fault: what, who, and what to do; queues are `topic/broker/queue`."""

    code: str
    severity: Severity
    queues: tuple[str, ...]
    members: tuple[str, ...]
    message: str
    action: str


class Diagnosis(msgspec.Struct, frozen=True):
    """Every fault that was found, the worst first."""

    healthy: bool
    findings: tuple[Finding, ...]


#: Facts in, findings out.
Rule: TypeAlias = Callable[[GroupFacts, Limits], Iterator[Finding]]


def finding(
    code: str,
    severity: Severity,
    message: str,
    action: str,
    *,
    queues: Iterable[MessageQueue] = (),
    members: Iterable[str] = (),
) -> Finding:
    """A finding with its queues and members in order, each once."""
    paths = tuple(queue.path for queue in sorted_queues(queues))
    return Finding(code, severity, paths, tuple(sorted(set(members))), message, action)


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "queue"), counted(3, "queue")
    ('1 queue', '3 queues')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
