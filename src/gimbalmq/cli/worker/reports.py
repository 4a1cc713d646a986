"""What a worker and its children say to each other: lines of JSON, one message each.

Orders go to a child's standard input, and its end is the last order: whoever gave them is gone.
Reports come back over a pipe of their own, so that whatever the user's code prints stays output.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.cli.worker.events import Failure
from gimbalmq.telemetry.families import Family

__all__ = [
    "Ask",
    "DrainNow",
    "Failed",
    "HurryUp",
    "Joined",
    "Order",
    "Report",
    "Setup",
    "Status",
    "encode",
    "read_order",
    "read_report",
]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told on its command line."""

    target: str
    number: int
    stem: str | None
    drain_s: float
    report_fd: int


class DrainNow(msgspec.Struct, frozen=True, tag="drain"):
    """Finish, commit, leave, exit."""


class HurryUp(msgspec.Struct, frozen=True, tag="hurry"):
    """Wait for listeners no longer."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Tell how you are; answered by a `Status` with the same number."""

    question: int


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """The consumer runs."""

    group: str
    client_id: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The consumer cannot run."""

    failure: Failure
    reason: str


class Status(msgspec.Struct, frozen=True, tag="status"):
    """How a child is, and what it measured."""

    question: int
    live: bool
    ready: bool
    reasons: tuple[str, ...]
    queues: int
    families: tuple[Family, ...]


Order = DrainNow | HurryUp | Ask
Report = Joined | Failed | Status

_encoder: Final = msgspec.json.Encoder()
_orders: Final = msgspec.json.Decoder(Order)
_reports: Final = msgspec.json.Decoder(Report)


def encode(message: Order | Report) -> bytes:
    """One line."""
    return _encoder.encode(message) + b"\n"


def read_order(line: bytes) -> Order:
    """The order on a line."""
    order: Order = _orders.decode(line)
    return order


def read_report(line: bytes) -> Report:
    """The report on a line."""
    report: Report = _reports.decode(line)
    return report
