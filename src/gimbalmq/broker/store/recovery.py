"""What happens to a data directory before it is used again.

After a clean stop nothing is scanned. Otherwise the log is walked from the start of the segment
that the last checkpoint names, every seal is checked, and both indexes are made again from there;
before it they are trusted. Where the log stops making sense there are two cases:

    torn tail  nothing behind it proves that it was ever safe on disk: it is cut, and so is
               everything behind it; nobody was promised these bytes
    damage     a seal behind it, or the checkpoint, says that it was: nothing is touched, and the
               error names file and byte; with `salvage` the readable rest is kept, and the lost
               messages become holes in their queues

Must not know how messages get into the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.checkpoint import Checkpoint
from gimbalmq.broker.store.key_index import KeyIndex
from gimbalmq.broker.store.layout import (
    BLANK_BYTES,
    Blank,
    Facts,
    Frame,
    entry_at,
    next_seal,
    records_of,
    written_bytes,
)
from gimbalmq.broker.store.queue_index import QueueIndex
from gimbalmq.broker.store.queue_table import QueueTable
from gimbalmq.broker.store.segments import Segment, Segments
from gimbalmq.broker.store.terms import index_terms, key_seed

__all__ = ["Recovery", "RecoveryReport"]

_GAP_BYTES_MAX: Final = (1 << 31) - 1


class RecoveryReport(msgspec.Struct, frozen=True):
    """What was found and done when a data directory was opened."""

    #: The last stop was clean: nothing had to be scanned.
    clean: bool
    scanned_bytes: int
    scanned_messages: int
    #: Bytes of a torn tail that were cut.
    cut_bytes: int
    #: Everything that was repaired, in words, with file and byte.
    repairs: tuple[str, ...]


class _IndexIncompleteError(Exception):
    """The part of an index that was trusted misses messages."""


class Recovery:
    """One pass over a data directory; `run` is called once."""

    def __init__(
        self,
        segments: Segments,
        queues: QueueTable,
        keys: KeyIndex,
        *,
        segment_bytes: int,
        checkpoint: Checkpoint | None,
        deleted: Mapping[str, int],
        salvage: bool,
        check_all: bool,
    ) -> None:
        self._segments = segments
        self._queues = queues
        self._keys = keys
        self._segment_bytes = segment_bytes
        self._checkpoint = checkpoint or Checkpoint()
        self._lost_checkpoint = checkpoint is None
        self._deleted = deleted
        self._salvage = salvage
        self._check_all = check_all
        self._repairs: list[str] = []
        self._scanned_bytes = self._scanned_messages = self._cut_bytes = 0
        self._last_bytes = 0
        #: Where the log ends, and up to where the device is known to have it.
        self.end = self.flushed_until = 0
        #: Where the last scan began: the checkpoint to start from after the next crash.
        self.scanned_from = 0

    def run(self) -> RecoveryReport:
        """Make log and indexes agree.

        Raises:
            StoreError: messages that were stored safely are damaged, and `salvage` is not set.
        """
        segments = self._segments
        if self._lost_checkpoint and segments.held:
            self._note("no usable checkpoint: scanned the whole log")
        self._join_segments()
        clean = self._check_all is False and self._is_clean()
        if clean:
            self.scanned_from = self.end = self.flushed_until = self._checkpoint.log_until
        else:
            trusted = segments.segment_of(self._checkpoint.log_until)
            self._scan_from(segments.start if self._check_all or trusted is None else trusted.start)
        for segment in segments.held[:-1]:
            if segment.end <= self.scanned_from:
                self._check_full(segment)
        for queue in self._queues.values():
            queue.raise_minimum(segments.start)
        self._keys.drop_outside(segment.start for segment in segments.held)
        return RecoveryReport(
            clean,
            self._scanned_bytes,
            self._scanned_messages,
            self._cut_bytes,
            tuple(self._repairs),
        )

    def _join_segments(self) -> None:
        """Every segment must end where the next one starts; the last must have its full length."""
        segments = self._segments
        for segment, following in zip(segments.held, segments.held[1:], strict=False):
            wanted = following.start - segment.start
            if segment.limit == wanted:
                continue
            what = f"it has {segment.limit} bytes, and the next one starts after {wanted}"
            if segment.limit < wanted <= _GAP_BYTES_MAX and not self._was_safe(segment):
                # A power cut took its size with bytes that nobody was promised: the scan cuts it.
                segments.lengthen(segment, wanted)
                continue
            if not self._salvage or not segment.limit < wanted <= _GAP_BYTES_MAX:
                raise _damage(segment, min(segment.limit, wanted), what)
            segments.lengthen(segment, wanted)
            self._note(f"log segment '{segment.path}': {what}; the rest is lost")
            self._check_all = True
        if segments.held:
            last = segments.held[-1]
            self._last_bytes = last.limit
            if last.limit < self._segment_bytes:
                segments.lengthen(last, self._segment_bytes)

    def _was_safe(self, segment: Segment) -> bool:
        """Whether what is missing at the end of a segment had been safe on disk."""
        safe_until = self._behind(segment, segment.limit)[1]
        return segment.end < max(safe_until, self._checkpoint.safe_until)

    def _is_clean(self) -> bool:
        """Whether the last stop was clean, and what it left is still there."""
        checkpoint, segments = self._checkpoint, self._segments
        if not checkpoint.clean:
            return False
        if not segments.held:
            return checkpoint.log_until == 0 and not self._queues
        last = segments.held[-1]
        at = checkpoint.log_until - last.start
        if not 0 <= at <= self._last_bytes:
            self._note(f"log segment '{last.path}' does not reach to where the last run stopped")
            return False
        if any(segments.view(last)[at : at + BLANK_BYTES]):
            self._note(f"log segment '{last.path}' has more than the last run left")
            return False
        entries = sum(queue.next_offset for queue in self._queues.values())
        if entries != checkpoint.entries:
            self._note("the queue index is not as the last run left it: made it again")
            self._check_all = True
            return False
        last.until = checkpoint.log_until
        last.first_ms, last.last_ms = checkpoint.first_ms, checkpoint.last_ms
        if not self._keys.resume(last.start, checkpoint.log_until):
            self._index_keys(last)
        return True

    def _scan_from(self, place: int) -> None:
        try:
            self._scan(place)
        except _IndexIncompleteError:
            self._note("the queue index misses messages: made it again from the log")
            self._scan(self._segments.start)

    def _scan(self, place: int) -> None:
        """Walk the log from the start of a segment to its end, and index what is there."""
        segments = self._segments
        self.scanned_from = place
        self._scanned_bytes = self._scanned_messages = 0
        for queue in self._queues.values():
            keep = queue.first_at_or_after(place)
            if keep < queue.next_offset:
                queue.cut(keep)
        self._keys.begin(place)
        segment = segments.segment_of(place)
        while segment is not None:
            segment.until = segment.start
            segment.first_ms = segment.last_ms = 0
            if not self._scan_segment(segment):
                break
            following = segments.segment_of(segment.end)
            if following is not None:
                segments.write_footer(segment)
                self._keys.roll(following.start, segment.until)
            segment = following
        self.end = segments.held[-1].until if segments.held else 0
        self.flushed_until = min(self._checkpoint.safe_until, self.end)

    def _scan_segment(self, segment: Segment) -> bool:
        """Index a segment's records; False when the log ends in it."""
        view, at = self._segments.view(segment), 0
        while at <= segment.limit - BLANK_BYTES:
            entry = entry_at(view, at, segment.start)
            if isinstance(entry, Frame):
                records = records_of(view, entry)
                if records is not None:
                    self._take(segment, entry, records)
                    at = entry.until
                    continue
            elif isinstance(entry, Blank):
                at = entry.until
                continue
            resume = self._stopped(segment, at)
            if resume is None:
                return False
            at = resume
        return True

    def _take(self, segment: Segment, frame: Frame, records: list[Facts]) -> None:
        tags = self._take_keys(segment, frame, records)
        for facts, tag_hash in zip(records, tags, strict=True):
            if facts.physical_offset >= self._deleted.get(facts.topic, 0):
                self._index(facts, tag_hash)
        self._scanned_bytes += frame.until - frame.records_from
        self._scanned_messages += len(records)

    def _take_keys(self, segment: Segment, frame: Frame, records: list[Facts]) -> list[int]:
        """Index the keys of some records; returns the hashes of their tags."""
        self._keys.make_room(segment.until)
        tags: list[int] = []
        for facts in records:
            tag_hash, hashes = index_terms(facts.properties, key_seed(facts.topic))
            tags.append(tag_hash)
            self._keys.add(hashes, facts.physical_offset - segment.start)
            stored_ms = facts.store_timestamp_ms
            segment.last_ms = max(segment.last_ms, stored_ms)
            if stored_ms < segment.first_ms or not segment.first_ms:
                segment.first_ms = stored_ms
        segment.until = segment.start + frame.until
        return tags

    def _index(self, facts: Facts, tag_hash: int) -> None:
        """Put a record into its queue's index, whatever the index holds."""
        queue = self._queues.get((facts.topic, facts.queue_id))
        if queue is None:
            queue = self._queues[facts.topic, facts.queue_id] = self._queues.make(
                facts.topic, facts.queue_id
            )
        if facts.queue_offset < queue.next_offset:
            queue.cut(facts.queue_offset)
        elif facts.queue_offset > queue.next_offset:
            self._bridge(queue, facts)
        queue.make_room()
        queue.add(facts.physical_offset, facts.size, tag_hash, facts.store_timestamp_ms)

    def _bridge(self, queue: QueueIndex, facts: Facts) -> None:
        """The record is not the next one of its queue: others before it are missing."""
        if self.scanned_from > self._segments.start:
            raise _IndexIncompleteError
        if queue.first_at_or_after(self._segments.start) == queue.next_offset:
            queue.restart(facts.queue_offset)
            return
        self._note(
            f"offsets {queue.next_offset} to {facts.queue_offset - 1} of queue "
            f"{facts.topic}/{facts.queue_id} are lost"
        )
        queue.fill_holes(facts.queue_offset, facts.store_timestamp_ms)

    def _stopped(self, segment: Segment, at: int) -> int | None:
        """Nothing valid starts at a byte: the end, a torn tail, or damage.

        Returns the byte of the segment to go on from, None if the log ends here.
        """
        place = segment.start + at
        resume, safe_until = self._behind(segment, at)
        safe = place < max(safe_until, self._checkpoint.safe_until)
        if safe and not self._salvage:
            raise _damage(segment, at, "the bytes there are not what was stored")
        if not safe or resume is None:
            self._cut(segment, at)
            return None
        resume = min(resume, segment.end)
        self._note(f"gave up {resume - place} bytes of '{segment.path}' from byte {at} on")
        self._segments.skip(segment, at, resume - place)
        return resume - segment.start

    def _behind(self, segment: Segment, at: int) -> tuple[int | None, int]:
        """Where the first valid seal behind a byte is, and up to where any of them calls the log
        safe.
        """
        resume: int | None = None
        safe_until = 0
        for one in self._segments.held[self._segments.held.index(segment) :]:
            if not one.limit:
                continue  # a power cut left its name alone
            view = self._segments.view(one)
            position = at if one is segment else 0
            while (found := next_seal(view, position, one.start)) is not None:
                place, frame = one.start + found[0], found[1]
                resume = place if resume is None else resume
                safe_until = max(safe_until, frame.flushed_until)
                position = frame.until
        return resume, safe_until

    def _cut(self, segment: Segment, at: int) -> None:
        """Let the log end at a byte; whatever lies behind is wiped when writing starts."""
        written = written_bytes(self._segments.view(segment), at)
        while self._segments.held[-1] is not segment:
            written += written_bytes(self._segments.view(self._segments.held[-1]), 0)
            self._segments.drop_last()
        self._cut_bytes = max(self._cut_bytes, written)
        if written:
            self._note(f"cut {written} bytes of unfinished writes: '{segment.path}', byte {at} on")

    def _check_full(self, segment: Segment) -> None:
        """A full segment that was not scanned: its footer and its keys must be there."""
        known = self._segments.read_footer(segment)
        if known and self._keys.complete(segment.start, segment.until):
            return
        active, self._keys = self._keys, self._keys.beside()
        self._index_keys(segment)
        self._keys.write_out(segment.until)
        self._keys.sync()
        self._keys = active
        self._segments.write_footer(segment)

    def _index_keys(self, segment: Segment) -> None:
        """Read a segment's keys, times and end from its records, up to the first damage."""
        self._note(f"made the key index of log segment '{segment.path}' again")
        self._keys.begin(segment.start)
        segment.until = segment.start
        segment.first_ms = segment.last_ms = 0
        view, at = self._segments.view(segment), 0
        while (entry := entry_at(view, at, segment.start)) is not None:
            if isinstance(entry, Frame):
                self._take_keys(segment, entry, records_of(view, entry) or [])
            at = entry.until

    def _note(self, repair: str) -> None:
        if repair not in self._repairs:  # a second scan meets the same things
            self._repairs.append(repair)


def _damage(segment: Segment, at: int, what: str) -> StoreError:
    return StoreError(
        f"log segment '{segment.path}' is damaged at byte {at}: {what}. Messages that were stored "
        "safely are affected, so nothing was changed. Restore the file from a copy, or open the "
        "directory with salvage on: that keeps all that can be read and gives up the rest",
        path=str(segment.path),
    )
