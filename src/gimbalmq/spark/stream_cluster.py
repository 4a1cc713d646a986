"""The cluster as the driver of a stream sees it: routes and bounds, kept between batches.

Decides when routes are asked for again, and how long an answer is waited for. A broker that does
not answer is away until it does; without any name server the routes of before are used. What a
batch takes from it all, `stream_planner` decides.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from gimbalmq.errors import ConfigurationError, GimbalError, TransportError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.stream_offsets import Bounds, Offsets, Survey
from gimbalmq.spark.stream_survey import Layout, find_layout, take_survey
from gimbalmq.spark.topic_lookup import asks_for

if TYPE_CHECKING:
    from gimbalmq.spark.member import GroupMember

__all__ = ["ClusterView"]

_log = logging.getLogger("gimbalmq.spark")
_T = TypeVar("_T")

#: How long the start of a run waits for a cluster that does not answer.
_START_PATIENCE_S: Final = 10.0
#: How long a batch that has to be read again waits for its brokers: longer than a restart takes.
_REPLAY_PATIENCE_S: Final = 60.0
_BACK_OFF_S: Final = (0.1, 0.3, 1.0, 2.0)
#: How old routes may be: new queues and brokers are seen that much later.
_ROUTES_AGE_S: Final = 2.0


class ClusterView:
    """What one run of a query knows of the cluster."""

    def __init__(self, read: ReadOptions) -> None:
        self._read = read
        self._nameservers = NameServers(read.nameservers)
        self.pool = ConnectionPool(reach=read.reach)
        self._layout: Layout | None = None
        self._layout_at_s = -math.inf
        #: The queues of the checkpoint that the layout was to explain.
        self._layout_for: frozenset[MessageQueue] = frozenset()
        #: What the last look found.
        self.survey = Survey({})
        #: The last known maximum of every queue that is read.
        self.latest: Offsets = {}
        self._away_told: frozenset[MessageQueue] = frozenset()
        self._dropped_told: set[str] = set()
        #: By topic: whether the options mean it.
        self._asked: dict[str, bool] = {}

    def close(self) -> None:
        """Close the connections; safe to call again."""
        self.pool.close()

    # ---- looking -----------------------------------------------------------------------------

    def look(
        self,
        known: Mapping[MessageQueue, int],
        *,
        fresh: bool = False,
        patiently: bool = False,
        member: GroupMember | None = None,
    ) -> None:
        """Take a survey; routes are asked for again when they are old, or `fresh`.

        Of a member's queues only those that it holds are looked at.
        """
        asked = {queue: offset for queue, offset in known.items() if self._asks_for(queue.topic)}
        layout = self._layout
        if fresh or layout is None or self._is_old(layout, asked):
            layout = self._find_layout(asked, _START_PATIENCE_S if patiently else None)
        held = None
        if member is not None:
            member.cover(self._topics(layout))
            held = member.held()
        survey, failures = self.run(take_survey(layout, asked.keys(), held))
        if failures:
            self._layout_at_s = -math.inf  # it may be elsewhere by now
        self._tell_away(survey.away, failures)
        # A batch that is repeated may have brought routes of other topics.
        bounds = {q: one for q, one in survey.bounds.items() if self._asks_for(q.topic)}
        dropped = known.keys() - asked.keys()
        self._tell_dropped(dropped)
        self.survey = Survey(bounds, survey.away | dropped, survey.gone)
        self.latest = {queue: one.maximum for queue, one in bounds.items()}

    def _is_old(self, layout: Layout, known: Mapping[MessageQueue, int]) -> bool:
        """Whether routes may have changed, or were found when these queues were not known yet."""
        if time.monotonic() - self._layout_at_s > _ROUTES_AGE_S:
            return True
        return not known.keys() <= layout.queues | self._layout_for

    def _asks_for(self, topic: str) -> bool:
        """Whether a topic is still to be read: the options may have changed with a restart."""
        answer = self._asked.get(topic)
        if answer is None:
            answer = self._asked[topic] = asks_for(self._read, topic)
        return answer

    def _topics(self, layout: Layout) -> set[str]:
        read = self._read
        topics = set(read.topics)
        if read.topic_pattern is not None:
            topics = {topic for topic in layout.routes if self._asks_for(topic)}
        return topics | ({read.retry_topic} if read.retry_topic is not None else set())

    def find_layout(self, known: Mapping[MessageQueue, int]) -> Layout:
        """Ask for the routes, as the start of a run does: patiently."""
        return self._find_layout(known, _START_PATIENCE_S)

    def _find_layout(
        self, known: Mapping[MessageQueue, int], patience_s: float | None = None
    ) -> Layout:
        try:
            layout = self._ask(
                lambda: find_layout(self._nameservers, self._read, known.keys()),
                _START_PATIENCE_S if self._layout is None and patience_s is None else patience_s,
            )
        except (TransportError, ConfigurationError) as error:
            # A pattern that matches nothing any more: all topics are gone or away.
            if self._layout is None:
                raise
            _log.warning("going on with the routes of before: %s", error)
            layout = self._layout
        self._layout, self._layout_at_s = layout, time.monotonic()
        self._layout_for = frozenset(known)
        return layout

    def bounds_for(self, wanted: Offsets) -> dict[MessageQueue, Bounds | None]:
        """The bounds of queues, None for those that are gone; waits for brokers that are away."""
        deadline_s = time.monotonic() + _REPLAY_PATIENCE_S
        survey = self.survey
        for attempt in range(1_000):
            missing = wanted.keys() - survey.bounds.keys() - survey.gone.keys()
            if not missing:
                return {queue: survey.bounds.get(queue) for queue in wanted}
            if attempt and time.monotonic() > deadline_s:
                break
            if attempt:
                time.sleep(_BACK_OFF_S[min(attempt - 1, len(_BACK_OFF_S) - 1)])
            layout = self._find_layout(wanted, _REPLAY_PATIENCE_S)
            # Also queues that this member has lost since: the batch is in the checkpoint.
            survey, _ = self.run(take_survey(layout, wanted.keys()))
        first = min(missing)
        raise TransportError(
            f"a batch needs {first.path}, but broker '{first.broker}' has been away for "
            f"{_REPLAY_PATIENCE_S:g} s: start it again and then the query"
        )

    def addresses(self, queues: frozenset[MessageQueue]) -> dict[MessageQueue, str]:
        """Where queues are by the routes, also those that the survey left out."""
        found = {}
        for queue in queues:
            brokers = None if self._layout is None else self._layout.broker(queue)
            if brokers is not None and brokers.any_address is not None:
                found[queue] = brokers.any_address
        return found

    # ---- asking ------------------------------------------------------------------------------

    def ask(self, flow: Callable[[], Flow[_T]]) -> _T:
        """Run a flow that the start of a run cannot do without."""
        return self._ask(flow, _START_PATIENCE_S)

    def _ask(self, flow: Callable[[], Flow[_T]], patience_s: float | None) -> _T:
        """Run a flow; a failure that may pass is tried again for a while."""
        deadline_s = time.monotonic() + (patience_s or 0.0)
        attempt = 0
        while True:
            try:
                return self.run(flow())
            except GimbalError as error:
                if not error.retryable or time.monotonic() >= deadline_s:
                    raise
                _log.info("trying again: %s", error)
            time.sleep(_BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)])
            attempt += 1

    def run(self, flow: Flow[_T]) -> _T:
        """Run a flow once."""
        return run_inline(flow, self.pool)

    def _tell_away(
        self, away: frozenset[MessageQueue], failures: Mapping[str, GimbalError]
    ) -> None:
        if away == self._away_told:
            return
        for broker in sorted({queue.broker for queue in away - self._away_told}):
            why = failures.get(broker, "the name server knows no queues there of what is read")
            _log.warning(
                "broker '%s' is away, its queues are read when it is back: %s", broker, why
            )
        for broker in sorted({queue.broker for queue in self._away_told - away}):
            _log.warning("broker '%s' is back", broker)
        self._away_told = away

    def _tell_dropped(self, queues: Collection[MessageQueue]) -> None:
        for topic in sorted({queue.topic for queue in queues} - self._dropped_told):
            self._dropped_told.add(topic)
            _log.warning(
                "topic '%s' is in the checkpoint and no longer asked for: it is not read; its "
                "offsets stay, for the case that it is asked for again",
                self._read.namespace.user(topic),
            )
