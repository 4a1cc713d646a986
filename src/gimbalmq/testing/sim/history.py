"""What happened in a simulated run, in the order in which it happened.

Decides the vocabulary of a history and how it is printed; `gimbalmq.testing.checkers` judges it.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Iterator

import msgspec

__all__ = ["Happened", "History", "Kind"]


class Kind(enum.Enum):
    """What kind of thing happened."""

    #: A broker acknowledged a message; `text` is its body.
    SENT = "sent"
    #: A listener got a message, and was done with it (or raised).
    STARTED = "started"
    ENDED = "ended"
    FAILED = "failed"
    #: A member decided to store an offset; a broker was told one.
    STORES = "stores"
    COMMITTED = "committed"
    #: A member was told who is in the group, for the first time or not as before.
    LISTED = "listed"
    #: A queue became, and ceased to be, part of a member's assignment.
    OWNED = "owned"
    RELEASED = "released"
    #: A broker gave a member the lock of a queue that it had not, and got it back from itself; or
    #: the member took it off another one.
    LOCKED = "locked"
    UNLOCKED = "unlocked"
    TAKEN_OFF = "took off"
    #: A broker lost what it had only in memory, stored offsets of the last seconds among it.
    RESTARTED = "restarted"
    #: A member's process began, and ended, its listeners with it.
    JOINED = "joins"
    EXITED = "exits"
    #: Members were told to go, the network changed; what the seed did to the world.
    CHANGED = "changed"


class Happened(msgspec.Struct, frozen=True):
    """One line of a history; `at_s` is true time, which no process sees."""

    at_s: float
    kind: Kind
    who: str
    queue: str = ""
    offset: int = -1
    #: Which acquisition of the queue by the member.
    epoch: int = 0
    text: str = ""

    def __str__(self) -> str:
        where = f" {self.queue}" if self.queue else ""
        offset = f"@{self.offset}" if self.offset >= 0 else ""
        epoch = f" (acquisition {self.epoch})" if self.epoch else ""
        text = f" {self.text}" if self.text else ""
        return f"{self.at_s:9.4f} {self.who} {self.kind.value}{where}{offset}{epoch}{text}"


class History:
    """Everything that happened."""

    def __init__(self) -> None:
        self.lines: list[Happened] = []
        #: How many requests of one kind a member made in one second, by member, kind and second.
        self.requests: Counter[tuple[str, str, int]] = Counter()

    def __iter__(self) -> Iterator[Happened]:
        return iter(self.lines)

    def add(self, line: Happened) -> None:
        """Note what happened last."""
        self.lines.append(line)

    def of(self, *kinds: Kind) -> list[Happened]:
        """The lines of some kinds."""
        return [line for line in self.lines if line.kind in kinds]

    def digest(self) -> str:
        """Equal for equal histories."""
        return hashlib.sha256("\n".join(map(str, self.lines)).encode()).hexdigest()

    def story(self, queue: str = "") -> str:
        """The history as text; with `queue`, what concerns that queue or everything."""
        return "\n".join(
            str(one) for one in self.lines if queue in {"", one.queue} or not one.queue
        )
