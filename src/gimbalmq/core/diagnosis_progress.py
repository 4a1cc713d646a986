"""Rules about getting on: offsets that stand still or jump, load on one queue, slow brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gimbalmq.core.findings import Finding, Limits, Rule, counted, finding
from gimbalmq.core.group_facts import GroupFacts, GroupSample
from gimbalmq.model.queue import MessageQueue

__all__ = ["PROGRESS_RULES"]


# ---- do they get on --------------------------------------------------------------------------


def _stuck(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    owners = facts.second.owners()
    stuck = []
    for queue, after in facts.second.offsets.items():
        before = facts.first.offsets.get(queue)
        position = facts.second.position(queue)
        if before is None or queue not in owners or facts.broadcasting:
            continue  # nobody to get on
        then = facts.first.position(queue)
        start = after.minimum if position is None else position
        waiting = start < min(before.maximum, after.maximum)
        # A member that started at the end of a queue says no position before its first message.
        known = position is not None and position == then
        if waiting and (known or (position is None and _in_hand(facts, queue))):
            stuck.append(queue)
    if stuck:
        lag = sum(_lag(facts.second, queue) for queue in stuck)
        yield finding(
            "OFFSET_STUCK",
            "error",
            f"{counted(len(stuck), 'queue')} did not get on for {facts.interval_s:g} s with "
            f"{counted(lag, 'message')} waiting",
            "look at the listener: it hangs, fails and is tried again, or takes longer than this "
            "for a message (a longer --interval tells); members may also be paused",
            queues=stuck,
            members=list({one for queue in stuck for one in owners[queue]}),
        )


def _in_hand(facts: GroupFacts, queue: MessageQueue) -> bool:
    return all(
        any(held == queue and hold.cached for one in sample.members for held, hold in one.owns())
        for sample in (facts.first, facts.second)
    )


def _lag(sample: GroupSample, queue: MessageQueue) -> int:
    one = sample.offsets[queue]
    position = sample.position(queue)
    return one.maximum - (one.minimum if position is None else position)


def _jumped(facts: GroupFacts, _limits: Limits) -> Iterator[Finding]:
    back, beyond, expired = [], [], []
    for queue, after in facts.second.offsets.items():
        before = facts.first.offsets.get(queue)
        if after.committed is None or before is None or facts.broadcasting:
            continue
        if before.committed is not None and after.committed < before.committed:
            back.append(queue)
        # In both looks, because maximum and commit are not read at the same moment.
        if after.committed > after.maximum and (before.committed or 0) > before.maximum:
            beyond.append(queue)
        if after.committed < after.minimum and after.maximum > after.minimum:
            expired.append(queue)
    if back:
        yield finding(
            "OFFSET_JUMPED",
            "error",
            f"{counted(len(back), 'committed offset')} went back: messages are delivered again",
            "somebody reset the group, or two members commit for one queue; see the other findings",
            queues=back,
        )
    if beyond:
        yield finding(
            "OFFSET_JUMPED",
            "error",
            f"{counted(len(beyond), 'committed offset')} lie beyond the end of the queue: new "
            "messages up to there are skipped",
            "the queue was made anew or its broker lost messages: reset the group with "
            "`gimbalmq group reset`",
            queues=beyond,
        )
    if expired:
        yield finding(
            "OFFSET_JUMPED",
            "error",
            f"{counted(len(expired), 'queue')} have lost messages to retention that the group had "
            "not read",
            "read faster, or keep messages longer (fileReservedTime of the broker)",
            queues=expired,
        )


def _hot_queue(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    lags = {
        queue: _lag(facts.second, queue) for queue in facts.own_queues if not facts.broadcasting
    }
    total = sum(lags.values())
    for queue, lag in lags.items():
        if len(lags) > 2 and lag >= limits.hot_queue_lag and lag > total / 2:
            yield finding(
                "LAG_SKEW",
                "warning",
                f"one queue of {len(lags)} has {lag} of {total} waiting messages",
                "look for a sharding key that most messages share, or a slow message; the "
                "load-profile pipeline shows load by key",
                queues=(queue,),
                members=facts.second.owners().get(queue, ()),
            )


def _brokers(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    before = {one.name: one for one in facts.first.brokers}
    for one in facts.second.brokers:
        earlier = before.get(one.name, one)
        if one.failure:
            yield finding(
                "BROKER_LAGGING",
                "error",
                f"broker '{one.name}' cannot be asked ({one.failure})",
                "restart it, or check the network; its queues stand still meanwhile",
                queues=[queue for queue in facts.second.offsets if queue.broker == one.name],
            )
            continue
        why = []
        if not one.has_master and not earlier.has_master:
            why.append("it has no master, so nothing can be sent to it, locked or committed there")
        if min(one.answer_s, earlier.answer_s) > limits.broker_answer_s:
            why.append(f"it took {one.answer_s:.1f} s to answer")
        if min(one.waiting_s, earlier.waiting_s) > limits.broker_waiting_s:
            why.append(f"requests wait {one.waiting_s:.1f} s for a thread")
        if min(one.behind_bytes, earlier.behind_bytes) > limits.broker_behind_bytes:
            why.append(f"{one.behind_bytes >> 20} MiB are stored and not readable yet")
        if why:
            yield finding(
                "BROKER_LAGGING",
                "warning" if one.has_master else "error",
                f"broker '{one.name}' lags: {'; '.join(why)}",
                "look at its disk, memory and garbage collection, or move queues to other brokers",
            )


#: In the order in which findings of equal severity are told.
PROGRESS_RULES: Final[tuple[Rule, ...]] = (_stuck, _jumped, _brokers, _hot_queue)
