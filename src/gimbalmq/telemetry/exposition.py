"""The text form in which Prometheus reads metrics (version 0.0.4 of the format).

From values alone: who asks, and over what, is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from gimbalmq.telemetry.families import Distribution, Family, Metric, joined

__all__ = ["CONTENT_TYPE", "expose"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def expose(families: Iterable[Family]) -> str:
    """Write families down, each once, with what it means and of what kind it is.

    >>> from gimbalmq.telemetry.families import Kind
    >>> sent = Metric("sent_total", Kind.COUNTER, "Messages sent.", ("topic",))
    >>> print(expose([sent.family([sent.sample(3, "orders")])]), end="")
    # HELP sent_total Messages sent.
    # TYPE sent_total counter
    sent_total{topic="orders"} 3
    """
    return "".join(f"{line}\n" for family in joined(families) for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    metric = family.metric
    yield f"# HELP {metric.name} {metric.help.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {metric.name} {metric.kind.value}"
    for sample in family.samples:
        pairs = list(zip(metric.labels, sample.labels, strict=True))
        if isinstance(sample, Distribution):
            yield from _histogram(metric, pairs, sample)
        else:
            yield f"{metric.name}{_labels(pairs)} {_number(sample.value)}"


def _histogram(metric: Metric, pairs: list[tuple[str, str]], sample: Distribution) -> Iterator[str]:
    reached = 0
    for bound, count in zip((*metric.bounds, math.inf), sample.counts, strict=True):
        reached += count
        yield f"{metric.name}_bucket{_labels([*pairs, ('le', _number(bound))])} {reached}"
    yield f"{metric.name}_sum{_labels(pairs)} {_number(sample.total)}"
    yield f"{metric.name}_count{_labels(pairs)} {reached}"


def _labels(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{k}="{v.translate(_LABEL_ESCAPES)}"' for k, v in pairs) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    # Whole numbers as such: repr would turn large ones into powers of ten.
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)
