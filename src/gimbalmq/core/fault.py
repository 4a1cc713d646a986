"""Which brokers a producer keeps away from, for how long, and which queue it takes instead.

Off by default, as in Java. Two sets of rules, by the releases that have them: "5.x" (since 5.1.4)
and "4.x". Both put a slow or failing broker aside for a time read off a table; they differ in the
tables, in what ends the time, and in what happens when every broker is aside:

    5.x  a quick success does not end the time; a reachable broker is taken before an unreachable
         one, then any
    4.x  the next answer sets the time anew, so a quick success ends it; when all are aside, one of
         the better half is taken (Java overwrites an entry of the shared list for that; we do not)

Knows no clock: every method is told the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from gimbalmq.core.selection import RoundRobin
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["BrokerHealth", "FaultRules", "FaultTolerance", "Faults", "pause_s"]

FaultRules: TypeAlias = Literal["5.x", "4.x"]

_TABLES: Final[dict[FaultRules, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "5.x": (
        (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
        (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
    ),
    "4.x": (
        (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
        (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
    ),
}
#: The latency that stands for a failure, looked up in the table like any other.
_FAILURE_LATENCY_S: Final[dict[FaultRules, float]] = {"5.x": 10.0, "4.x": 30.0}


class FaultTolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer keeps away from slow and failing brokers.

    Args:
        rules: "5.x", or "4.x" for the longer times of older releases.
        latency_s, isolate_s: The table: an answer that took `latency_s[i]` or longer puts its
            broker aside for `isolate_s[i]`. None means Java's table for these rules.
        detector: Ask brokers that were put aside whether they answer again (5.x).
        detect_interval_s, detect_timeout_s: How often the detector asks one broker, and how long
            it waits, with Java's defaults.

    >>> FaultTolerance().table()[0][:3]
    (0.05, 0.1, 0.55)
    """

    rules: FaultRules = "5.x"
    latency_s: tuple[float, ...] | None = None
    isolate_s: tuple[float, ...] | None = None
    detector: bool = False
    detect_interval_s: float = 2.0
    detect_timeout_s: float = 0.2

    def __post_init__(self) -> None:
        if self.rules not in _TABLES:
            raise ConfigurationError(f"rules is '{self.rules}': there are '5.x' and '4.x'")
        latencies, pauses = self.table()
        if len(latencies) != len(pauses) or list(latencies) != sorted(latencies) or not latencies:
            raise ConfigurationError(
                f"latency_s has {len(latencies)} and isolate_s {len(pauses)} entries: give two "
                "lists of equal length, the first in ascending order"
            )
        if self.detect_interval_s <= 0 or self.detect_timeout_s <= 0:
            raise ConfigurationError("detect_interval_s and detect_timeout_s must be above 0")

    def table(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Latencies, and for each of them how long a broker is put aside."""
        latencies, pauses = _TABLES[self.rules]
        return (
            latencies if self.latency_s is None else tuple(self.latency_s),
            pauses if self.isolate_s is None else tuple(self.isolate_s),
        )


def pause_s(tolerance: FaultTolerance, latency_s: float) -> float:
    """How long to keep away from a broker that took this long.

    >>> pause_s(FaultTolerance(), 0.549), pause_s(FaultTolerance(), 0.55)
    (0.0, 2.0)
    """
    latencies, pauses = tolerance.table()
    for limit, pause in zip(reversed(latencies), reversed(pauses), strict=True):
        if latency_s >= limit:
            return pause
    return 0.0


class _Fault(msgspec.Struct):
    broker: str
    latency_s: float
    #: Available again from this time on.
    until_s: float
    reachable: bool
    check_at_s: float


class BrokerHealth(msgspec.Struct, frozen=True):
    """What a producer knows of a broker; `aside_s` is how much longer it is kept away from."""

    broker: str
    latency_s: float
    aside_s: float
    reachable: bool


class Faults:
    """What is known of each broker, and the choice that follows from it.

    Not safe for several threads at once: whoever shares it locks it.
    """

    __slots__ = ("_fallbacks", "_faults", "tolerance")

    def __init__(self, tolerance: FaultTolerance, *, fallback_start: int = 0) -> None:
        self.tolerance = tolerance
        self._faults: dict[str, _Fault] = {}
        #: Spreads the 4.x choice over the better half; start it anywhere.
        self._fallbacks = RoundRobin(fallback_start)

    # ---- reports -----------------------------------------------------------------------------

    def report(
        self,
        broker: str,
        latency_s: float,
        now_s: float,
        *,
        failed: bool = False,
        reachable: bool = True,
    ) -> None:
        """A broker answered after `latency_s`, or failed."""
        counted_s = _FAILURE_LATENCY_S[self.tolerance.rules] if failed else latency_s
        pause = pause_s(self.tolerance, counted_s)
        known = self._faults.get(broker)
        if known is None:
            # The first check of a broker is due at once.
            self._faults[broker] = _Fault(broker, latency_s, now_s + pause, reachable, now_s)
            return
        known.latency_s = latency_s
        known.reachable = reachable
        if self.tolerance.rules == "4.x":
            known.until_s = now_s + pause
        elif pause > 0:
            known.until_s = max(known.until_s, now_s + pause)

    def forget(self, broker: str) -> None:
        """A broker is in no route any more."""
        self._faults.pop(broker, None)

    # ---- state -------------------------------------------------------------------------------

    def available(self, broker: str, now_s: float) -> bool:
        """Whether nothing speaks against a broker; unknown ones are available."""
        known = self._faults.get(broker)
        return known is None or now_s >= known.until_s

    def reachable(self, broker: str) -> bool:
        """Whether a broker is not known to refuse or to be gone."""
        known = self._faults.get(broker)
        return known is None or known.reachable

    def health(self, now_s: float) -> dict[str, BrokerHealth]:
        """What is known, by broker name."""
        return {
            name: BrokerHealth(
                name, fault.latency_s, max(0.0, fault.until_s - now_s), fault.reachable
            )
            for name, fault in sorted(self._faults.items())
        }

    # ---- detector ----------------------------------------------------------------------------

    def due_checks(self, now_s: float) -> list[str]:
        """Brokers to ask now; each is due again after the interval."""
        due = [fault for fault in self._faults.values() if now_s >= fault.check_at_s]
        for fault in due:
            fault.check_at_s = now_s + self.tolerance.detect_interval_s
        return [fault.broker for fault in due]

    def answered(self, broker: str) -> None:
        """A broker that the detector asked is there."""
        known = self._faults.get(broker)
        if known is not None:
            known.reachable = True

    # ---- choice ------------------------------------------------------------------------------

    def select(
        self,
        ring: RoundRobin,
        queues: Sequence[MessageQueue],
        write_queues: Mapping[str, int],
        now_s: float,
        *,
        failed_broker: str | None = None,
    ) -> MessageQueue:
        """The queue to send to next; `failed_broker` is that of the previous attempt.

        `write_queues` has the number of queues of each broker that may be sent to.
        """
        if self.tolerance.rules == "4.x":
            return self._select_4x(ring, queues, write_queues, now_s)
        return self._select_5x(ring, queues, now_s, failed_broker)

    def _select_5x(
        self,
        ring: RoundRobin,
        queues: Sequence[MessageQueue],
        now_s: float,
        failed_broker: str | None,
    ) -> MessageQueue:
        size = len(queues)
        for _ in queues:
            queue = queues[ring.step() % size]
            if queue.broker != failed_broker and self.available(queue.broker, now_s):
                return queue
        for _ in queues:
            queue = queues[ring.step() % size]
            if queue.broker != failed_broker and self.reachable(queue.broker):
                return queue
        return ring.next(queues)

    def _select_4x(
        self,
        ring: RoundRobin,
        queues: Sequence[MessageQueue],
        write_queues: Mapping[str, int],
        now_s: float,
    ) -> MessageQueue:
        size = len(queues)
        # One step of the counter for the whole walk: what Java does.
        first = ring.step()
        for distance in range(size):
            queue = queues[_java_position(first + distance, size)]
            if self.available(queue.broker, now_s):
                return queue
        broker = self._better_half(now_s)
        if broker is None:
            return ring.next(queues)
        count = write_queues.get(broker, 0)
        if count <= 0:
            self.forget(broker)
            return ring.next(queues)
        topic = ring.next(queues).topic
        return MessageQueue(topic, broker, ring.step() % count)

    def _better_half(self, now_s: float) -> str | None:
        if not self._faults:
            return None
        ranked = sorted(
            self._faults.values(),
            key=lambda fault: (now_s < fault.until_s, fault.latency_s, fault.until_s),
        )
        half = len(ranked) // 2
        return ranked[self._fallbacks.step() % half if half else 0].broker


def _java_position(number: int, size: int) -> int:
    """`abs(number) % size` of a 32-bit number that may just have overflowed, as 4.x computes it."""
    if number < 1 << 31:
        return number % size
    # The smallest number has no positive counterpart; Java catches that and takes 0.
    return 0 if number == 1 << 31 else ((1 << 32) - number) % size
