"""What a producer measures of its sends, and the numbers it tells.

Measuring is on the way of every send: one look at a clock and two additions, no lock.
"""

from __future__ import annotations

import msgspec

from gimbalmq.core.fault import BrokerHealth
from gimbalmq.errors import BrokerError, GimbalError
from gimbalmq.telemetry.catalogue import PRODUCER_ATTEMPTS, PRODUCER_SEND
from gimbalmq.telemetry.families import Distribution, Sample
from gimbalmq.telemetry.instruments import Counter, Histogram
from gimbalmq.wire.command import Command

__all__ = ["BrokerSends", "ProducerStats", "SendMeter", "producer_stats"]


class BrokerSends(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the attempts to send to one broker; a wire batch is one attempt."""

    broker: str
    stored: int
    #: The broker answered with an error.
    refused: int
    #: There was no answer: a broken connection, or a time-out.
    failed: int
    #: Mean seconds until a message was stored; None before the first.
    latency_s: float | None
    #: For how much longer fault tolerance keeps away from it.
    isolated_s: float


class ProducerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A producer at one moment; counts are since its start."""

    group: str
    client_id: str
    in_flight: int
    in_flight_bytes: int
    brokers: tuple[BrokerSends, ...]
    #: How latencies are spread, by broker, in the buckets of the metric.
    latencies: tuple[Distribution, ...]


class SendMeter:
    """Measures the sends of one producer, from any thread."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._outcomes = Counter(PRODUCER_ATTEMPTS)
        self._latencies = Histogram(PRODUCER_SEND)

    def stored(self, broker: str, latency_s: float, times: int = 1) -> None:
        """A broker has stored what it was sent."""
        self._latencies.observe((self._group, broker), latency_s, times)

    def attempted(self, broker: str, outcome: Command | GimbalError, latency_s: float) -> None:
        """An attempt is over, one way or the other."""
        if isinstance(outcome, BrokerError):
            self._outcomes.add((self._group, broker, "refused"))
        elif isinstance(outcome, GimbalError):
            self._outcomes.add((self._group, broker, "failed"))
        else:
            self.stored(broker, latency_s)

    def outcomes(self) -> dict[str, dict[str, int]]:
        """Attempts that did not go well: counts by broker and outcome."""
        found: dict[str, dict[str, int]] = {}
        for sample in self._outcomes.family().samples:
            assert isinstance(sample, Sample)
            _, broker, outcome = sample.labels
            found.setdefault(broker, {})[outcome] = int(sample.value)
        return found

    def latencies(self) -> tuple[Distribution, ...]:
        """How long it took until brokers had stored, by broker."""
        samples = self._latencies.family().samples
        return tuple(sample for sample in samples if isinstance(sample, Distribution))


def producer_stats(
    group: str,
    client_id: str,
    meter: SendMeter,
    health: dict[str, BrokerHealth],
    in_flight: tuple[int, int],
) -> ProducerStats:
    """Put the numbers together."""
    latencies = meter.latencies()
    spread = {sample.labels[1]: sample for sample in latencies}
    outcomes = meter.outcomes()
    brokers = []
    for broker in sorted({*spread, *outcomes, *health}):
        stored = spread.get(broker)
        bad = outcomes.get(broker, {})
        count = 0 if stored is None else stored.count
        known = health.get(broker)
        brokers.append(
            BrokerSends(
                broker=broker,
                stored=count,
                refused=bad.get("refused", 0),
                failed=bad.get("failed", 0),
                latency_s=None if stored is None else stored.total / count,
                isolated_s=0.0 if known is None else known.aside_s,
            )
        )
    return ProducerStats(
        group=group,
        client_id=client_id,
        in_flight=in_flight[0],
        in_flight_bytes=in_flight[1],
        brokers=tuple(brokers),
        latencies=latencies,
    )
