"""What is wrong with a group, from facts that were collected about it.

One rule per function: facts in, findings out. A rule needs both samples to show its fault, so that
a group in the middle of a rebalance is not called ill. Nothing is asked here, and nothing is
repaired; each finding says what a person can do.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.core.diagnosis_locks import LOCK_RULES
from gimbalmq.core.diagnosis_members import MEMBER_RULES
from gimbalmq.core.diagnosis_progress import PROGRESS_RULES
from gimbalmq.core.diagnosis_queues import QUEUE_RULES
from gimbalmq.core.findings import Diagnosis, Finding, Limits
from gimbalmq.core.group_facts import GroupFacts

__all__ = ["CODES", "Diagnosis", "Finding", "Limits", "diagnose"]

#: Every code that a finding may have.
CODES: Final = (
    "NO_MEMBERS",
    "DUPLICATE_ID",
    "MEMBER_PARTLY_LISTED",
    "MEMBER_SILENT",
    "MIXED_STRATEGIES",
    "MIXED_LOCKING",
    "UNSAFE_LOCK_TIMES",
    "UNEQUAL_SUBSCRIPTIONS",
    "QUEUE_DOUBLY_OWNED",
    "QUEUE_UNOWNED",
    "LOCK_HELD_BY_DEAD",
    "OFFSET_STUCK",
    "OFFSET_JUMPED",
    "BROKER_LAGGING",
    "HANDOVER_LONG",
    "MIXED_VERSIONS",
    "IDLE_MEMBERS",
    "SKEW",
    "LAG_SKEW",
)


def diagnose(facts: GroupFacts, limits: Limits | None = None) -> Diagnosis:
    """Judge a group by every rule.

    >>> from gimbalmq.core.group_facts import GroupSample
    >>> empty = GroupSample((), {})
    >>> [one.code for one in diagnose(GroupFacts("billing", empty, empty, 6.0)).findings]
    ['NO_MEMBERS']
    """
    chosen = limits or Limits()
    findings = [
        finding
        for rule in (*MEMBER_RULES, *LOCK_RULES, *QUEUE_RULES, *PROGRESS_RULES)
        for finding in rule(facts, chosen)
    ]
    findings.sort(key=lambda one: one.severity != "error")
    return Diagnosis(not findings, tuple(findings))
