"""Judges the history of a run: what was lost, reordered, owned twice or not at all.

Each checker returns what is wrong, in words with times, and an empty list when nothing is. They
know what a history says and nothing of how it came about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gimbalmq.testing.sim.history import Happened, History, Kind

__all__ = [
    "check_commits",
    "check_cover",
    "check_drained",
    "check_exclusive",
    "check_key_order",
    "check_lanes",
    "check_late_stores",
    "check_load",
    "check_loss",
    "check_once",
    "check_order",
    "check_overlap",
    "check_settled",
    "check_stores",
    "settled_after_s",
]

#: How long after its start a broker's offsets may be those of before the crash.
_AFTER_CRASH_S: Final = 10.0
_LISTENING: Final = (Kind.STARTED, Kind.ENDED, Kind.FAILED, Kind.EXITED)

#: One acquisition of a queue: the member, and which one of that member's it was.
_Session = tuple[str, int]


# ---- messages --------------------------------------------------------------------------------


def check_loss(history: History) -> list[str]:
    """Every acknowledged message was processed."""
    done = {line.text for line in history.of(Kind.ENDED)}
    return [
        f"lost: {line.text}, acknowledged at {line.at_s:.3f} as {line.queue}@{line.offset}"
        for line in history.of(Kind.SENT)
        if line.text not in done
    ]


def check_once(history: History) -> list[str]:
    """A message was started again only because a listener failed on it.

    Promised for groups that lock their queues, when members come and go cleanly. Not for queues
    that were not given back, because a listener did not end in time when its member left: what was
    done above it comes again. And not where a broker carried an older offset out after a newer one.
    """
    queues = _not_given_back(history) | _reordered(history)
    starts = history.of(Kind.STARTED)
    unsure = {line.text for line in starts if line.queue in queues}
    counts = Counter(line.text for line in starts)
    failures = Counter(line.text for line in history.of(Kind.FAILED))
    return [
        f"delivered {count} times: {text}, and failed {failures[text]} times"
        for text, count in counts.items()
        if count > 1 + failures[text] and text not in unsure
    ]


def _not_given_back(history: History) -> set[str]:
    """Queues of which a member had the lock when it ended."""
    holders: dict[str, str] = {}
    found: set[str] = set()
    for line in history.of(Kind.LOCKED, Kind.UNLOCKED, Kind.EXITED):
        if line.kind is Kind.LOCKED:
            holders[line.queue] = line.who
        elif line.kind is Kind.UNLOCKED:
            holders.pop(line.queue, None)
        else:
            found.update(queue for queue, who in holders.items() if who == line.who)
    return found


def _reordered(history: History) -> set[str]:
    """Queues of which a broker was told an offset of one member after a higher one."""
    highest: dict[tuple[str, str], int] = {}
    found: set[str] = set()
    for line in history.of(Kind.COMMITTED):
        key = line.queue, line.who
        if line.offset < highest.get(key, 0):
            found.add(line.queue)
        highest[key] = max(line.offset, highest.get(key, 0))
    return found


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


def check_key_order(history: History) -> list[str]:
    """No message `<key>-<number>` was started before all of its key with lower numbers were done."""
    wrong: list[str] = []
    done: dict[str, int] = defaultdict(int)
    for line in history.of(Kind.STARTED, Kind.ENDED):
        key, number = _key_of(line)
        if line.kind is Kind.ENDED:
            done[key] = max(done[key], number + 1)
        elif number > done[key]:
            wrong.append(
                f"out of order: {line.who} started {line.text} at {line.at_s:.3f}, but "
                f"{key}-{done[key]} is not processed"
            )
    return wrong


def check_lanes(history: History) -> list[str]:
    """No two messages `<key>-<number>` of one key ran side by side in one acquisition."""
    wrong: list[str] = []
    for line, running in _starts(history):
        key = _key_of(line)[0]
        wrong += (
            f"side by side: {line.who} started {line.text} at {line.at_s:.3f} beside {other.text}, "
            f"started at {other.at_s:.3f}"
            for other in running
            if _session(other) == _session(line) and _key_of(other)[0] == key
        )
    return wrong


def _key_of(line: Happened) -> tuple[str, int]:
    key, _dash, number = line.text.partition("-")
    return key, int(number)


# ---- ownership -------------------------------------------------------------------------------


def _session(line: Happened) -> _Session:
    return line.who, line.epoch


def _starts(history: History) -> Iterator[tuple[Happened, list[Happened]]]:
    """Each start, with the starts of the queue whose listeners are running at that moment."""
    running: dict[str, list[Happened]] = defaultdict(list)
    for line in history.of(*_LISTENING):
        if line.kind is Kind.STARTED:
            yield line, running[line.queue]
            running[line.queue].append(line)
        else:
            _take_off(running, line)


def _take_off(running: dict[str, list[Happened]], line: Happened) -> None:
    """Take what ended off what runs: one listener's message, or all of a process."""
    if line.kind is Kind.EXITED:
        for queue, starts in running.items():
            running[queue] = [one for one in starts if one.who != line.who]
        return
    starts = running[line.queue]
    for number, one in enumerate(starts):
        if _session(one) == _session(line) and one.offset == line.offset:
            del starts[number]
            return


def check_exclusive(history: History) -> list[str]:
    """Once another acquisition of a queue has started a message, the earlier one starts no more."""
    wrong: list[str] = []
    current: dict[str, _Session] = {}
    over: dict[str, dict[_Session, float]] = defaultdict(dict)
    for line in history.of(Kind.STARTED):
        session = _session(line)
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


def check_overlap(history: History) -> list[str]:
    """No acquisition of a queue started a message while a listener of another one was running.

    Promised for groups that lock their queues, as long as no member is hindered: a listener that
    runs while its member cannot renew its locks cannot be stopped from outside.
    """
    return [
        f"overlap: {line.who} (acquisition {line.epoch}) started {line.queue}@{line.offset} at "
        f"{line.at_s:.3f}, while {other.who} (acquisition {other.epoch}) still had "
        f"@{other.offset} since {other.at_s:.3f}"
        for line, running in _starts(history)
        for other in running
        if _session(other) != _session(line)
    ]


def check_drained(history: History) -> list[str]:
    """No member gave the lock of a queue back while a listener of it was running there."""
    wrong: list[str] = []
    running: dict[str, list[Happened]] = defaultdict(list)
    for line in history.of(*_LISTENING, Kind.UNLOCKED):
        if line.kind is Kind.STARTED:
            running[line.queue].append(line)
        elif line.kind is Kind.UNLOCKED:
            wrong += (
                f"not drained: {line.who} gave {line.queue} back at {line.at_s:.3f}, while a "
                f"listener of it had @{other.offset} since {other.at_s:.3f}"
                for other in running[line.queue]
                if other.who == line.who
            )
        else:
            _take_off(running, line)
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


# ---- offsets ---------------------------------------------------------------------------------


def check_stores(history: History) -> list[str]:
    """What a member means to store of a queue only grows while it has the queue."""
    wrong: list[str] = []
    told: dict[tuple[str, _Session], int] = {}
    for line in history.of(Kind.STORES):
        key = line.queue, _session(line)
        if line.offset < told.get(key, 0):
            wrong.append(
                f"offset taken back: {line.who} (acquisition {line.epoch}) stores {line.offset} "
                f"for {line.queue} at {line.at_s:.3f}, after {told[key]}"
            )
        told[key] = line.offset
    return wrong


def _broker_of(queue: str) -> str:
    return queue.split("/")[1]


def check_late_stores(history: History) -> list[str]:
    """While a queue is owned, what had it before stores no offset of it.

    Promised for groups that lock their queues: offsets are stored under the lock, or not at all.
    """
    wrong: list[str] = []
    owners: dict[str, Happened] = {}
    for line in history.of(Kind.OWNED, Kind.UNLOCKED, Kind.STORES, Kind.RESTARTED):
        owner = owners.get(line.queue)
        if line.kind is Kind.RESTARTED:  # it has forgotten its locks, and gives them anew
            owners = {queue: one for queue, one in owners.items() if _broker_of(queue) != line.who}
        elif line.kind is Kind.OWNED:
            owners[line.queue] = line
        elif owner is None:
            continue
        elif line.kind is Kind.UNLOCKED:
            if owner.who == line.who:
                del owners[line.queue]
        elif _session(owner) != _session(line):
            wrong.append(
                f"late offset: {line.who} (acquisition {line.epoch}) stores {line.offset} for "
                f"{line.queue} at {line.at_s:.3f}, although {owner.who} (acquisition "
                f"{owner.epoch}) had it from {owner.at_s:.3f} on"
            )
    return wrong


def check_commits(history: History) -> list[str]:
    """Stored offsets never move back; promised for groups that lock their queues.

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
                queue: offset for queue, offset in stored.items() if _broker_of(queue) != line.who
            }
            continue
        restarted = restarted_at.get(_broker_of(line.queue), float("-inf"))
        excused = line.at_s - restarted < _AFTER_CRASH_S
        if line.offset < stored.get(line.queue, 0) and not excused:
            wrong.append(
                f"offset moved back: {line.queue} from {stored[line.queue]} to {line.offset} "
                f"at {line.at_s:.3f} by {line.who}"
            )
        else:
            stored[line.queue] = line.offset
    return wrong


# ---- coming to rest --------------------------------------------------------------------------


def settled_after_s(history: History) -> float:
    """How long after the last change of the world the last queue changed hands."""
    changes = history.of(Kind.CHANGED, Kind.JOINED)
    changed = max((line.at_s for line in changes), default=0.0)
    moved = max((line.at_s for line in history.of(Kind.OWNED, Kind.RELEASED)), default=0.0)
    return max(0.0, moved - changed)


def check_settled(history: History, within_s: float) -> list[str]:
    """Ownership came to rest within a bound after the last change."""
    after_s = settled_after_s(history)
    if after_s <= within_s:
        return []
    return [f"slow: queues changed hands {after_s:.1f} s after the last change, not {within_s:.1f}"]


def check_load(history: History, most: Mapping[str, int]) -> list[str]:
    """No member made more requests of a kind in one second than it may; `most` is by kind."""
    return [
        f"runs in circles: {who} sent {kind} {count} times in the second from {second}"
        for (who, kind, second), count in history.requests.items()
        if count > most.get(kind, count)
    ]
