"""Counters and histograms that many threads write to at once, without a lock on their way.

Every thread writes to cells of its own; whoever reads adds them up. The cells of threads that
have ended are added to a remainder when somebody reads, so that short-lived threads cost nothing
in the end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Generic, TypeVar

from gimbalmq.telemetry.families import Distribution, Family, Metric, Sample

__all__ = ["Counter", "Histogram"]

_Labels = tuple[str, ...]
_CellT = TypeVar("_CellT")


class _Cells(ABC, Generic[_CellT]):
    """Cells by thread and labels; what kind they are is decided below."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        #: `cells`: those of the thread that looks.
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._threads: list[tuple[threading.Thread, dict[_Labels, _CellT]]] = []
        self._ended: dict[_Labels, _CellT] = {}

    def _own_cells(self) -> dict[_Labels, _CellT]:
        """A new set of cells for this thread."""
        cells: dict[_Labels, _CellT] = {}
        self._mine.cells = cells
        with self._lock:
            self._threads.append((threading.current_thread(), cells))
        return cells

    def _gathered(self) -> dict[_Labels, list[_CellT]]:
        """All cells, by labels."""
        with self._lock:
            alive = []
            for thread, cells in self._threads:
                if thread.is_alive():
                    alive.append((thread, cells))
                else:
                    for labels, cell in cells.items():
                        known = self._ended.get(labels)
                        self._ended[labels] = cell if known is None else self._add(known, cell)
            self._threads = alive
            found: dict[_Labels, list[_CellT]] = {k: [cell] for k, cell in self._ended.items()}
            for _, cells in alive:
                # A copy in one step: the owner may add a cell meanwhile.
                for labels, cell in cells.copy().items():
                    found.setdefault(labels, []).append(cell)
            return found

    @abstractmethod
    def _add(self, first: _CellT, second: _CellT) -> _CellT:
        """Both in one cell."""


class _Count:
    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value


class Counter(_Cells[_Count]):
    """A number that only grows.

    >>> from gimbalmq.telemetry.families import Kind
    >>> sent = Counter(Metric("sent_total", Kind.COUNTER, "Messages sent.", ("topic",)))
    >>> sent.add(("orders",)); sent.add(("orders",), 2)
    >>> sent.family().samples
    (Sample(labels=('orders',), value=3.0),)
    """

    def add(self, labels: _Labels, amount: float = 1.0) -> None:
        """Count; labels in the metric's order."""
        try:
            cells: dict[_Labels, _Count] = self._mine.cells
        except AttributeError:
            cells = self._own_cells()
        cell = cells.get(labels)
        if cell is None:
            cell = cells[labels] = _Count()
        cell.value += amount

    def family(self) -> Family:
        """What was counted until now."""
        return self.metric.family(
            Sample(labels, sum(cell.value for cell in cells))
            for labels, cells in sorted(self._gathered().items(), key=lambda one: one[0])
        )

    def _add(self, first: _Count, second: _Count) -> _Count:
        return _Count(first.value + second.value)


class _Buckets:
    __slots__ = ("counts", "total")

    def __init__(self, counts: list[int], total: float = 0.0) -> None:
        self.counts = counts
        self.total = total


class Histogram(_Cells[_Buckets]):
    """How observations are spread over the metric's buckets."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._bounds = metric.bounds

    def observe(self, labels: _Labels, value: float, times: int = 1) -> None:
        """Take one observation in, or several that are equal; a bound belongs below itself."""
        try:
            cells: dict[_Labels, _Buckets] = self._mine.cells
        except AttributeError:
            cells = self._own_cells()
        cell = cells.get(labels)
        if cell is None:
            cell = cells[labels] = _Buckets([0] * (len(self._bounds) + 1))
        cell.counts[bisect_left(self._bounds, value)] += times
        cell.total += value * times

    def family(self) -> Family:
        """What was observed until now."""
        found = sorted(self._gathered().items(), key=lambda one: one[0])
        return self.metric.family(
            Distribution(
                labels,
                tuple(map(sum, zip(*(cell.counts for cell in cells), strict=True))),
                sum(cell.total for cell in cells),
            )
            for labels, cells in found
        )

    def _add(self, first: _Buckets, second: _Buckets) -> _Buckets:
        counts = list(map(sum, zip(first.counts, second.counts, strict=True)))
        return _Buckets(counts, first.total + second.total)
