"""Judges the history of a run: what was lost, reordered, owned twice or not at all.

Each checker returns what is wrong, in words with times, and an empty list when nothing is. They
know what a history says and nothing of how it came about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from gimbalmq.testing.sim.history import History, Kind

__all__ = [
    "check_commits",
    "check_cover",
    "check_exclusive",
    "check_loss",
    "check_once",
    "check_order",
    "check_settled",
    "settled_after_s",
]

#: How long after its start a broker's offsets may be those of before the crash.
_AFTER_CRASH_S: Final = 10.0


def check_loss(history: History) -> list[str]:
    """Every acknowledged message was processed."""
    done = {line.text for line in history.of(Kind.ENDED)}
    return [
        f"lost: {line.text}, acknowledged at {line.at_s:.3f} as {line.queue}@{line.offset}"
        for line in history.of(Kind.SENT)
        if line.text not in done
    ]


def check_once(history: History) -> list[str]:
    """No message was started twice; promised for leases when nothing fails."""
    starts = Counter(line.text for line in history.of(Kind.STARTED))
    return [f"delivered {count} times: {text}" for text, count in starts.items() if count > 1]


def check_exclusive(history: History) -> list[str]:
    """Once another acquisition of a queue has started a message, the earlier one starts no more."""
    wrong: list[str] = []
    current: dict[str, tuple[str, int]] = {}
    over: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for line in history.of(Kind.STARTED):
        session = line.who, line.epoch
        before = current.get(line.queue)
        if session in over[line.queue]:
            wrong.append(
                f"two owners: {line.who} (acquisition {line.epoch}) started "
                f"{line.queue}@{line.offset} at {line.at_s:.3f}, although another member had "
                f"started messages at {over[line.queue][session]:.3f}"
            )
        elif before is not None and before != session:
            over[line.queue][before] = line.at_s
        current[line.queue] = session
    return wrong


def check_order(history: History, topic: str) -> list[str]:
    """No message of a queue was started before all earlier ones were processed."""
    wrong: list[str] = []
    done: dict[str, set[int]] = defaultdict(set)
    frontier: dict[str, int] = defaultdict(int)
    for line in history.of(Kind.STARTED, Kind.ENDED):
        if not line.queue.startswith(f"{topic}/"):
            continue
        if line.kind is Kind.ENDED:
            done[line.queue].add(line.offset)
            while frontier[line.queue] in done[line.queue]:
                frontier[line.queue] += 1
        elif line.offset > frontier[line.queue]:
            wrong.append(
                f"out of order: {line.who} started {line.queue}@{line.offset} at {line.at_s:.3f}, "
                f"but @{frontier[line.queue]} is not processed"
            )
    return wrong


def check_commits(history: History) -> list[str]:
    """Stored offsets never move back.

    Except after a crash of their broker, which forgets locks and the offsets of the last seconds:
    the next owner may begin before the last one has stored its offset again.
    """
    wrong: list[str] = []
    stored: dict[str, int] = {}
    restarted_at: dict[str, float] = {}
    for line in history.of(Kind.COMMITTED, Kind.RESTARTED):
        if line.kind is Kind.RESTARTED:
            restarted_at[line.who] = line.at_s
            # What it had not written to its disk is forgotten: whoever comes first sets it anew.
            stored = {
                queue: offset for queue, offset in stored.items() if queue.split("/")[1] != line.who
            }
            continue
        broker = line.queue.split("/")[1]
        excused = line.at_s - restarted_at.get(broker, float("-inf")) < _AFTER_CRASH_S
        if line.offset < stored.get(line.queue, 0) and not excused:
            wrong.append(
                f"offset moved back: {line.queue} from {stored[line.queue]} to {line.offset} "
                f"at {line.at_s:.3f} by {line.who}"
            )
        else:
            stored[line.queue] = line.offset
    return wrong


def check_cover(assignments: Mapping[str, Iterable[str]], queues: Iterable[str]) -> list[str]:
    """Every queue has exactly one owner; `assignments` are queues by member."""
    owners: dict[str, list[str]] = {queue: [] for queue in queues}
    wrong: list[str] = []
    for member, owned in assignments.items():
        for queue in owned:
            if queue in owners:
                owners[queue].append(member)
            else:
                wrong.append(f"unknown queue: {member} owns {queue}")
    wrong += [f"no owner: {queue}" for queue, found in owners.items() if not found]
    wrong += [
        f"{len(found)} owners: {queue} is owned by {', '.join(sorted(found))}"
        for queue, found in owners.items()
        if len(found) > 1
    ]
    return wrong


def settled_after_s(history: History) -> float:
    """How long after the last change of the world the last queue changed hands."""
    changed = max((line.at_s for line in history.of(Kind.CHANGED)), default=0.0)
    moved = max((line.at_s for line in history.of(Kind.OWNED, Kind.RELEASED)), default=0.0)
    return max(0.0, moved - changed)


def check_settled(history: History, within_s: float) -> list[str]:
    """Ownership came to rest within a bound after the last change."""
    after_s = settled_after_s(history)
    if after_s <= within_s:
        return []
    return [f"slow: queues still changed hands {after_s:.1f} s after the last change"]
