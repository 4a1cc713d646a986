"""What a measurement is: metrics, their samples, and how samples of several sources are joined.

Plain values; where they come from and how they are written down is the business of others.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from gimbalmq.errors import ConfigurationError

__all__ = [
    "Distribution",
    "Family",
    "Kind",
    "Metric",
    "Sample",
    "joined",
    "labelled",
    "nothing",
]


class Kind(enum.Enum):
    """How a metric behaves over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """A thing that is measured: its name, what it means and what it is told apart by.

    `bounds` are the upper bounds of a histogram's buckets, rising, without the infinite one.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def sample(self, value: float, *labels: str) -> Sample:
        """One value of this metric, with its labels in their order."""
        _check_labels(self, labels)
        return Sample(labels, float(value))

    def family(self, samples: Iterable[Sample | Distribution]) -> Family:
        """All values of this metric."""
        return Family(self, tuple(samples))


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """A number, with the values of its metric's labels."""

    labels: tuple[str, ...]
    value: float


class Distribution(msgspec.Struct, frozen=True, tag="distribution"):
    """How many observations fell into each bucket, the infinite one last, and their sum."""

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)


class Family(msgspec.Struct, frozen=True):
    """A metric and its samples."""

    metric: Metric
    samples: tuple[Sample | Distribution, ...]


def nothing(metric: Metric, *labels: str) -> Distribution:
    """A histogram without observations."""
    _check_labels(metric, labels)
    return Distribution(labels, (0,) * (len(metric.bounds) + 1), 0.0)


def labelled(families: Iterable[Family], name: str, value: str) -> list[Family]:
    """The same families with one more label on every sample: where it comes from."""
    replace = msgspec.structs.replace
    return [
        Family(
            replace(family.metric, labels=(*family.metric.labels, name)),
            tuple(replace(one, labels=(*one.labels, value)) for one in family.samples),
        )
        for family in families
    ]


def joined(families: Iterable[Family]) -> list[Family]:
    """One family per metric, in the order of first appearance; samples of equal labels are added.

    Raises:
        ConfigurationError: two sources use one name for different things.
    """
    metrics: dict[str, Metric] = {}
    samples: dict[str, dict[tuple[str, ...], Sample | Distribution]] = {}
    for family in families:
        metric = family.metric
        if metrics.setdefault(metric.name, metric) != metric:
            raise ConfigurationError(
                f"metric '{metric.name}' is defined twice, differently: give one another name"
            )
        merged = samples.setdefault(metric.name, {})
        for one in family.samples:
            known = merged.get(one.labels)
            merged[one.labels] = one if known is None else _sum(metric, known, one)
    return [Family(metric, tuple(samples[name].values())) for name, metric in metrics.items()]


def _sum(
    metric: Metric, first: Sample | Distribution, second: Sample | Distribution
) -> Sample | Distribution:
    match first, second:
        case Sample(), Sample():
            return Sample(first.labels, first.value + second.value)
        case Distribution(), Distribution():
            counts = tuple(map(sum, zip(first.counts, second.counts, strict=True)))
            return Distribution(first.labels, counts, first.total + second.total)
    raise ConfigurationError(f"metric '{metric.name}' has numbers and distributions: use one kind")


def _check_labels(metric: Metric, labels: tuple[str, ...]) -> None:
    if len(labels) != len(metric.labels):
        raise ConfigurationError(
            f"metric '{metric.name}' has the labels {metric.labels}, but got {labels}"
        )
