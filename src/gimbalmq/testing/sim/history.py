"""What happened in a simulated run, in the order in which it happened.

Decides the vocabulary of a history and how it is printed; `gimbalmq.testing.checkers` judges it.
"""

from __future__ import annotations

import enum
import hashlib
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
    #: A broker was told an offset.
    COMMITTED = "committed"
    #: A queue became, and ceased to be, part of a member's assignment.
    OWNED = "owned"
    RELEASED = "released"
    #: A broker lost what it had only in memory, stored offsets of the last seconds among it.
    RESTARTED = "restarted"
    #: Members came or went, the network changed; what the seed did to the world.
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
