"""What every benchmark shares: taking times, describing the machine, printing results.

A benchmark yields rows, each comparing a time or a rate of ours with an anchor. `run` prints them
as `{"machine": {...}, "rows": [...]}` with --json, as a table otherwise. Progress goes to standard
error. The ratio is always ours divided by the anchor, also for times. Of a row that has the ratios
of its rounds it is their median: a machine that others share may change its speed threefold within
a run, but not much between neighbours.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Row", "arguments", "best_s", "machine", "run", "timed", "undisturbed"]


class Row(msgspec.Struct, frozen=True):
    """One comparison; `note` says what a reader has to know to judge it."""

    case: str
    ours: float
    anchor: float | None
    anchor_name: str
    unit: str
    note: str = ""
    #: Ours divided by the anchor in each round, where rounds of both alternate.
    rounds: tuple[float, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Ours divided by the anchor; None without an anchor."""
        if self.rounds:
            return statistics.median(self.rounds)
        return self.ours / self.anchor if self.anchor else None

    def as_json(self) -> dict[str, Any]:
        """The row as it is printed."""
        document: dict[str, Any] = {
            "case": self.case,
            "ours": self.ours,
            "anchor": self.anchor,
            "anchor_name": self.anchor_name,
            "ratio": self.ratio,
            "unit": self.unit,
        }
        if self.rounds:
            document["rounds"] = self.rounds
        return {**document, "note": self.note} if self.note else document


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has; add your own before `run`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    return parser


def run(rows: Iterable[Row], *, as_json: bool) -> int:
    """Take all rows, print them, and return the exit code."""
    taken: list[Row] = []
    for row in rows:
        taken.append(row)
        print(f"{row.case}: {_number(row.ours)} {row.unit}", file=sys.stderr, flush=True)
    facts = machine()
    if as_json:
        print(json.dumps({"machine": facts, "rows": [row.as_json() for row in taken]}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in facts.items()))
        print(_table(taken))
    return 0


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the garbage collector from running while times are taken."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(work: Callable[[], object]) -> float:
    """Seconds that one call takes, the garbage collector left out."""
    with undisturbed():
        started = time.perf_counter()
        work()
        return time.perf_counter() - started


def best_s(work: Callable[[], object], *, budget_s: float = 1.0, calls_max: int = 50) -> float:
    """The shortest of several calls: as many as fit into the budget, three at least."""
    taken: list[float] = []
    until = time.perf_counter() + budget_s
    while len(taken) < 3 or (len(taken) < calls_max and time.perf_counter() < until):
        taken.append(timed(work))
    return min(taken)


def machine() -> dict[str, object]:
    """Where this runs; neither host name nor user."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in {"model name", "Model"}:
                return value.strip()
    return platform.processor() or platform.machine()


def _table(rows: list[Row]) -> str:
    lines = [("case", "ours", "anchor", "ratio", "unit", "against", "note")]
    for row in rows:
        anchor = "-" if row.anchor is None else _number(row.anchor)
        ratio = "-" if row.ratio is None else f"{row.ratio:.3g}"
        lines.append(
            (row.case, _number(row.ours), anchor, ratio, row.unit, row.anchor_name, row.note)
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 1 <= at <= 3 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
