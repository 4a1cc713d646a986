"""What the demo's child processes tell it: one JSON document per line on their standard output.

Times are those of the system-wide monotonic clock, so that they compare across processes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.model.queue import MessageQueue

__all__ = [
    "FINISH",
    "LINE_BYTES_MAX",
    "Archived",
    "Failed",
    "Joining",
    "Leaving",
    "Owned",
    "Predicted",
    "Profiled",
    "Rebalanced",
    "Received",
    "Report",
    "SessionReady",
    "Streamed",
    "decode",
    "encode",
]

#: The kernel writes up to so many bytes to a pipe whole or not at all (PIPE_BUF on Linux), so a
#: member that is killed leaves no half line behind.
LINE_BYTES_MAX: Final = 4096
#: The line that tells Spark's process to come to its end.
FINISH: Final = b"finish\n"


class Joining(msgspec.Struct, frozen=True, tag="joining", tag_field="event"):
    """A member is about to join its group."""

    at: float
    client_id: str


class Owned(msgspec.Struct, frozen=True, tag="owned", tag_field="event"):
    """The queues that a member holds from now on."""

    at: float
    queues: tuple[MessageQueue, ...]


class Received(msgspec.Struct, frozen=True, tag="received", tag_field="event"):
    """A message, told before it is acknowledged: what the broker takes for consumed was told."""

    at: float
    key: str
    queue: MessageQueue


class Rebalanced(msgspec.Struct, frozen=True, tag="rebalanced", tag_field="event"):
    """A member changed what it holds of the topic; `trigger` is what made it look."""

    at: float
    trigger: str


class Leaving(msgspec.Struct, frozen=True, tag="leaving", tag_field="event"):
    """A member begins to leave."""

    at: float


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="event"):
    """The process gives up."""

    message: str


class SessionReady(msgspec.Struct, frozen=True, tag="session", tag_field="event"):
    """Spark runs."""

    at: float
    spark_version: str


class Streamed(msgspec.Struct, frozen=True, tag="streamed", tag_field="event"):
    """The next offset that Spark's stream will read of each queue, by its path."""

    at: float
    offsets: dict[str, int]


class Archived(msgspec.Struct, frozen=True, tag="archived", tag_field="event"):
    """What the files of the stream hold of each queue: rows, and different messages."""

    at: float
    rows: dict[str, int]
    different: dict[str, int]


class Predicted(msgspec.Struct, frozen=True):
    """What the busiest member of a group would carry under a strategy, in averages."""

    strategy: str
    members: int
    busiest: float
    fairness: float


class Profiled(msgspec.Struct, frozen=True, tag="profiled", tag_field="event"):
    """The load of each queue, by its path, and what each strategy would make of it."""

    at: float
    loads: dict[str, int]
    skew: float
    spread: tuple[Predicted, ...]


Report = (
    Joining
    | Owned
    | Received
    | Rebalanced
    | Leaving
    | Failed
    | SessionReady
    | Streamed
    | Archived
    | Profiled
)

_decoder: Final = msgspec.json.Decoder(Report)


def encode(report: Report) -> bytes:
    """One line."""
    return msgspec.json.encode(report) + b"\n"


def decode(line: bytes) -> Report:
    """Read a line.

    Raises:
        msgspec.MsgspecError: it is none of ours.
    """
    report: Report = _decoder.decode(line)
    return report
