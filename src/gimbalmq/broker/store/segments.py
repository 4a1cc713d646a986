"""The files of the commit log: which there are, what lies where, and their bytes.

A segment is a file named by the place of its first byte. It is made at full length with a hole
instead of content, so it takes the space of what is written and can be mapped once; reads are
slices of a read-only map. What a start after a crash mends is done here too.

Must not know what is appended or when it is safe: the writer of the last segment is `log`.
"""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.files import Disk, disk_errors, shown
from gimbalmq.broker.store.layout import (
    BLANK_BYTES,
    Footer,
    blank,
    footer_at,
    make_footer,
    record_size,
)

__all__ = ["Segment", "Segments"]

_NAME_DIGITS: Final = 20


class Segment(msgspec.Struct, eq=False):
    """One file of the log: bytes `start` to `start + limit`, records up to `until`."""

    path: Path
    start: int
    limit: int
    until: int
    #: Earliest and latest time of storing; 0 while there is no record.
    first_ms: int = 0
    last_ms: int = 0

    @property
    def end(self) -> int:
        """The place where the next segment starts."""
        return self.start + self.limit


class Segments:
    """The segments of one directory, oldest first, each of which ends where the next one starts."""

    def __init__(self, directory: Path, disk: Disk, *, maps_max: int = 4) -> None:
        self.directory = directory
        self.held = _segments_in(directory)
        self._disk = disk
        self._starts = [segment.start for segment in self.held]
        self._maps: OrderedDict[int, memoryview] = OrderedDict()
        self._maps_max = maps_max

    @property
    def start(self) -> int:
        """The first place that is held."""
        return self._starts[0] if self._starts else 0

    def segment_of(self, place: int) -> Segment | None:
        """The segment that holds a place of the log."""
        index = bisect.bisect_right(self._starts, place) - 1
        if index < 0 or place >= self.held[index].end:
            return None
        return self.held[index]

    def view(self, segment: Segment) -> memoryview:
        """All bytes of a segment; views taken from it outlive the segment."""
        view = self._maps.get(segment.start)
        if view is not None:
            self._maps.move_to_end(segment.start)
            return view
        try:
            descriptor = os.open(segment.path, os.O_RDONLY)
            try:
                mapped = mmap.mmap(descriptor, segment.limit, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise shown(error, "read the log segment", segment.path) from error
        except ValueError as error:
            raise StoreError(
                f"the log segment '{segment.path}' is shorter than its {segment.limit} bytes: it "
                "was cut from outside; restart the broker to have it checked",
                path=str(segment.path),
            ) from error
        view = self._maps[segment.start] = memoryview(mapped)
        if len(self._maps) > self._maps_max:
            # Not closed: slices may be on their way to a client. The last one unmaps it.
            self._maps.popitem(last=False)
        return view

    def record_at(self, place: int) -> memoryview | None:
        """The record that starts at a place; None if none does."""
        segment = self.segment_of(place)
        if segment is None or place >= segment.until:
            return None
        view, at = self.view(segment), place - segment.start
        size = record_size(view, at, place)
        if size is None or place + size > segment.until:
            return None
        return view[at : at + size]

    # Coming and going

    def add(self, start: int, limit: int) -> int:
        """Make the segment that follows the last one; returns a descriptor to write to it.

        Raises:
            StoreError: the disk refused; there is no new segment.
        """
        path = self.directory / f"{start:0{_NAME_DIGITS}d}"
        descriptor = -1
        try:
            descriptor = self._disk.open(path)
            self._disk.resize(descriptor, 0)  # left over from an earlier attempt
            self._disk.resize(descriptor, limit)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
                with contextlib.suppress(OSError):  # the next attempt or start takes what is left
                    self._disk.remove(path)
            raise shown(error, "make the log segment", path) from error
        self.held.append(Segment(path, start, limit, start))
        self._starts.append(start)
        return descriptor

    def drop_first(self) -> Segment:
        """Remove the oldest segment."""
        segment = self.held[0]
        with disk_errors("remove the log segment", segment.path):
            self._disk.remove(segment.path)
        del self.held[0], self._starts[0]
        self._maps.pop(segment.start, None)
        return segment

    def drop_last(self) -> Segment:
        """Remove the newest segment; only before writing starts."""
        segment = self.held.pop()
        self._starts.pop()
        self._maps.pop(segment.start, None)
        with disk_errors("remove the log segment", segment.path):
            self._disk.remove(segment.path)
        return segment

    def forget_view(self, segment: Segment) -> None:
        """Map a segment anew when it is read next: its length has changed."""
        self._maps.pop(segment.start, None)

    def close(self) -> None:
        """Let go of the maps."""
        self._maps.clear()

    # Mending; not while writing

    def read_footer(self, segment: Segment) -> bool:
        """Take over what a full segment says about itself; False if it does not say it."""
        footer = footer_at(self.view(segment))
        if footer is None or not segment.start <= footer.until <= segment.end:
            return False
        segment.until, segment.first_ms, segment.last_ms = footer
        return True

    def write_footer(self, segment: Segment) -> None:
        """Make a full segment say about itself what is known now."""
        footer = Footer(segment.until, segment.first_ms, segment.last_ms)
        if footer_at(self.view(segment)) == footer:
            return
        data = make_footer(footer)
        with self._opened(segment, "write the footer of the log segment") as descriptor:
            self._disk.write_at(descriptor, data, segment.limit - len(data))

    def lengthen(self, segment: Segment, limit: int) -> None:
        """Add a hole to a segment that is shorter than it should be."""
        with self._opened(segment, "lengthen the log segment") as descriptor:
            self._disk.resize(descriptor, limit)
        segment.limit = limit
        self.forget_view(segment)

    def skip(self, segment: Segment, at: int, size: int) -> None:
        """Mark bytes that cannot be read as bytes to skip."""
        if size < BLANK_BYTES:
            return
        with self._opened(segment, "repair the log segment") as descriptor:
            self._disk.write_at(descriptor, blank(size), at)

    @contextlib.contextmanager
    def _opened(self, segment: Segment, what: str) -> Iterator[int]:
        with disk_errors(what, segment.path):
            descriptor = self._disk.open(segment.path)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


def _segments_in(directory: Path) -> list[Segment]:
    with disk_errors("list the log in", directory):
        directory.mkdir(parents=True, exist_ok=True)
        named = sorted(
            path
            for path in directory.iterdir()
            if len(path.name) == _NAME_DIGITS and path.name.isascii() and path.name.isdigit()
        )
        return [
            Segment(path, int(path.name), path.stat().st_size, int(path.name)) for path in named
        ]
