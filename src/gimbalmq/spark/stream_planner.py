"""Plans the batches of a stream, on the driver: asks the cluster, and decides by the pure rules.

One planner lives as long as a run of the query and keeps what is worth keeping between batches:
its view of the cluster (`stream_cluster`), estimates of sizes, what the group was told. Everything
that a restart needs is in the checkpoint. It knows nothing of Spark.

What fails while planning does not end the query. A broker that does not answer is left out, with
its offsets unchanged, until it does. Only the start of a run, which cannot do without an answer,
gives up after a while.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gimbalmq.errors import TransportError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.limits import UNLIMITED, Limits, choose_records
from gimbalmq.spark.lookup import data_loss, find_coverage, find_entry, find_places
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.positions import Loss
from gimbalmq.spark.stream_cluster import ClusterView
from gimbalmq.spark.stream_group import GroupOffsets, refuse_members
from gimbalmq.spark.stream_offsets import Offsets, Settled, Survey, settle, spans
from gimbalmq.spark.stream_options import StreamOptions
from gimbalmq.spark.stream_survey import sample_record_bytes, take_survey

if TYPE_CHECKING:
    from gimbalmq.spark.member import GroupMember

__all__ = ["StreamPlanner"]

_log = logging.getLogger("gimbalmq.spark")

#: How old the estimate of a record's size may be.
_SAMPLE_AGE_S: Final = 10.0
#: What a record takes while nothing is known of any.
_RECORD_BYTES: Final = 1024.0


class StreamPlanner:
    """Where the batches of one run of a query start and end."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._cluster = ClusterView(options.read)
        self._group = (
            GroupOffsets(options.read.group, self._cluster.pool)
            if options.commit_offsets and options.read.group is not None
            else None
        )
        self._member = _member(options) if options.is_member else None
        self._opened = False
        self._losses_told: set[Loss] = set()
        self._record_bytes: dict[MessageQueue, tuple[float, float]] = {}
        #: Queues of which this run knows that they were its own without a break.
        self._continued: frozenset[MessageQueue] = frozenset()
        self._last_batch_s = -math.inf
        self._turn = 0

    def close(self) -> None:
        """Leave the group and close the connections; safe to call again."""
        if self._member is not None:
            self._member.leave()
        self._cluster.close()

    @property
    def latest(self) -> Offsets:
        """The last known maximum of every queue that is read."""
        return self._cluster.latest

    # ---- the start ---------------------------------------------------------------------------

    def open(self) -> None:
        """Check what can only be checked against the cluster; once per run."""
        if self._opened:
            return
        read = self._options.read
        if self._member is None and read.group is not None:
            group = read.group
            self._cluster.ask(lambda: refuse_members(read, group))
        if self._member is not None:
            # A member whose keys are refused would wait for a share that it never gets.
            layout = self._cluster.find_layout({})
            self._cluster.ask(lambda: take_survey(layout, ()))
        self._opened = True

    def pin(self) -> Offsets:
        """Where a new query starts, in every queue.

        Raises:
            GimbalError: the start cannot be found, or offsets that were asked for are gone.
        """
        self.open()
        if self._member is not None:
            return self._pin_member()
        read = self._options.read
        coverage = self._cluster.ask(lambda: find_coverage(read))
        self._tell_losses(coverage.losses)
        self._cluster.latest = {one.queue: one.offset_until for one in coverage.ranges}
        return {one.queue: one.offset_from for one in coverage.ranges}

    def _pin_member(self) -> Offsets:
        read = self._options.read
        self._cluster.ask(lambda: find_places(read))
        self._cluster.look({}, member=self._member)
        entering, _ = self._enter({})
        return entering

    # ---- between batches ---------------------------------------------------------------------

    def aim(self, start: Mapping[MessageQueue, int] | None = None) -> Offsets:
        """The end of everything that is stored now, for a query that ends there."""
        self.open()
        self._cluster.look(start or {}, fresh=True, patiently=True, member=self._member)
        return dict(self._cluster.latest)

    def following(
        self,
        start: Offsets,
        *,
        target: Mapping[MessageQueue, int] | None = None,
        limited: bool = True,
    ) -> Offsets:
        """The end of the batch that starts here; the start itself when there is nothing to do.

        Raises:
            OffsetError: messages are gone and `failOnDataLoss` is true.
            StateError: the group has members (first call of a run only).
        """
        self.open()
        self._cluster.look(start, member=self._member)
        self.tell_group(start)
        settled = self._settled(start, target)
        if settled.losses:
            self._judge(settled.losses)
        limits = self._options.limits if limited else UNLIMITED
        chosen = choose_records(
            settled.waiting,
            # A query that ends must not wait for more.
            limits if target is None else _without_minimum(limits),
            record_bytes=self._sizes(settled, limits),
            waited_s=time.monotonic() - self._last_batch_s,
            turn=self._turn,
        )
        if chosen:
            self._last_batch_s = time.monotonic()
            self._turn += 1
        return settled.offsets | {
            queue: settled.offsets[queue] + records for queue, records in chosen.items()
        }

    def _settled(self, start: Offsets, target: Mapping[MessageQueue, int] | None) -> Settled:
        if self._member is None:
            return settle(start, self._cluster.survey, target=target)
        entering, leaving = self._enter(start)
        survey = self._cluster.survey
        # Of a queue that came in the middle of an outage nothing is known yet: it stays as it is.
        unknown = survey.bounds.keys() - self._continued
        ours = {queue: one for queue, one in survey.bounds.items() if queue not in unknown}
        return settle(
            {queue: offset for queue, offset in start.items() if queue not in leaving},
            Survey(ours, survey.away | unknown, survey.gone),
            entering=entering,
            target=target,
        )

    def _enter(self, start: Mapping[MessageQueue, int]) -> tuple[Offsets, frozenset[MessageQueue]]:
        """Where the queues start that were not this member's all the time.

        Also those of the checkpoint in which the group has got further meanwhile, by other
        members: they leave the map and enter it again, because an offset that only grows would be
        a range to read. The group is told at once, so that whoever gets a queue next starts
        there, too.
        """
        entering: Offsets = {}
        leaving: set[MessageQueue] = set()
        for queue, bounds in self._cluster.survey.bounds.items():
            if queue in self._continued:
                continue
            try:
                found = self._cluster.run(find_entry(queue, bounds.address, self._options.read))
            except TransportError as error:
                _log.warning("%s is left out for now: %s", queue.path, error)
                continue
            if found > start.get(queue, found):
                leaving.add(queue)
                continue
            # What is in the checkpoint was read, whether the group knows it or not.
            entering[queue] = start.get(queue, found)
            if self._group is not None:
                places = {queue: bounds.address}
                self._group.commit({queue: entering[queue]}, places, lost=frozenset({queue}))
        self._continued = (self._continued & self._cluster.survey.bounds.keys()) | entering.keys()
        return entering, frozenset(leaving)

    def tell_group(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets up to which everything is processed."""
        if self._group is None:
            return
        addresses = {queue: one.address for queue, one in self._cluster.survey.bounds.items()}
        lost: frozenset[MessageQueue] = frozenset()
        if self._member is not None:
            # What another member has, or had in between, may be further on by its work.
            lost = frozenset(offsets) - (self._continued & self._cluster.survey.bounds.keys())
            addresses |= self._cluster.addresses(lost - self._cluster.survey.away)
        self._group.commit(offsets, addresses, lost=lost)
        for queue in lost:
            self._group.forget(queue)

    def _sizes(self, settled: Settled, limits: Limits) -> dict[MessageQueue, float]:
        """An estimate of the bytes per record for every queue that waits."""
        if limits.bytes_max is None:
            return {}
        now_s = time.monotonic()
        for queue, records in settled.waiting.items():
            before = self._record_bytes.get(queue)
            if not records or (before is not None and now_s - before[1] < _SAMPLE_AGE_S):
                continue
            address = self._cluster.survey.bounds[queue].address
            offset = settled.offsets[queue]
            found = self._cluster.run(
                sample_record_bytes(queue, address, offset, self._options.read)
            )
            if found is not None:
                size = found if before is None else (found + before[0]) / 2
                self._record_bytes[queue] = size, now_s
        known = {queue: size for queue, (size, _) in self._record_bytes.items()}
        mean = sum(known.values()) / len(known) if known else _RECORD_BYTES
        return {queue: known.get(queue, mean) for queue in settled.waiting}

    # ---- tasks -------------------------------------------------------------------------------

    def ranges(self, start: Offsets, end: Offsets) -> list[ReadRange]:
        """What the batch between two checkpointed maps reads, and from where.

        Raises:
            OffsetError: messages are gone and `failOnDataLoss` is true.
            TransportError: the broker of a range stays away.
        """
        self.open()
        parts = list(spans(start, end))
        wanted = {one.queue: one.offset_from for one in parts}
        bounds = self._cluster.bounds_for(wanted)
        losses = [
            Loss(one.queue, one.offset_from, None if found is None else found.minimum)
            for one in parts
            if (found := bounds[one.queue]) is None or found.minimum > one.offset_from
        ]
        if losses:
            self._judge(losses)
        ranges = []
        for one in parts:
            found = bounds[one.queue]
            if found is not None:
                first = max(one.offset_from, found.minimum)
                if first < one.offset_until:
                    ranges.append(ReadRange(one.queue, found.address, first, one.offset_until))
        return ranges

    # ---- what the user is told ---------------------------------------------------------------

    def _judge(self, losses: tuple[Loss, ...] | list[Loss]) -> None:
        if self._options.read.fail_on_data_loss:
            raise data_loss(losses)
        self._tell_losses(losses)

    def _tell_losses(self, losses: tuple[Loss, ...] | list[Loss]) -> None:
        for loss in losses:
            if loss not in self._losses_told:
                self._losses_told.add(loss)
                _log.warning("%s; reading what is there (failOnDataLoss=false)", loss.sentence)


def _without_minimum(limits: Limits) -> Limits:
    return Limits(limits.records_max, limits.bytes_max)


def _member(options: StreamOptions) -> GroupMember:
    # The client is only needed here, and not a light import.
    from gimbalmq.spark.member import GroupMember

    return GroupMember(options)
