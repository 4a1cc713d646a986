"""WEIGHTED: CAPPED_HASH for queues of unequal load and members of unequal capacity.

Loads and capacities are configured: `weights` by queue path, `capacities` by the stem of a client
id; what is not named counts 1. Every member of the group has to be given the same: their digest is
part of the strategy's name, `WEIGHTED.<digest>`, which client ids carry, so that members that were
given different ones use AVG together instead of disagreeing.

With `weights="published"`, running members read the weights from a topic and are given them with
`with_weights`. Members read a new version at different times, and until all have it their shares do
not fit together; so that needs locks. The name is `WEIGHTED.published`, and a digest follows when
capacities or another topic are configured.

Queues are shared out from the heaviest class down. Weights are rounded up to classes, four to each
doubling (a step is a factor of at most 1.2), because the hash can keep a queue in place only among
queues that count alike. Within a class, each seat goes where (load + weight) / capacity is least,
and scores decide who sits where, as in CAPPED_HASH.

Bound, in rounded weights: load(a) / capacity(a) <= (load(b) + heaviest) / capacity(b) for any two
members a and b; in true weights the right side is up to 1.2 times as large. With equal weights and
capacities this is CAPPED_HASH. Ties: members that tie for the last seats of a class get them by
score; otherwise as CAPPED_HASH.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from typing import Any, Final, Literal, Self

from gimbalmq.core.allocation.base import Explanation
from gimbalmq.core.allocation.capped_hash import CappedHash
from gimbalmq.core.allocation.snapshot import Shares, Snapshot
from gimbalmq.core.identity import stem_of
from gimbalmq.errors import AllocationError, ConfigurationError
from gimbalmq.model.queue import MessageQueue, parse_queue
from gimbalmq.model.weights import WEIGHTS_TOPIC

__all__ = ["PUBLISHED", "Weighted", "check_weights", "weight_class"]

#: Instead of weights: read them from a topic while running.
PUBLISHED: Final = "published"

#: Where classes end within a doubling, in 1/1024: the powers of the fourth root of 2, rounded up.
_CLASS_ENDS: Final = (512, 609, 725, 862, 1024)
#: Weights and capacities outside of this range are mistakes of unit rather than loads.
_LEAST: Final = 1e-6
_MOST: Final = 1e12
#: 2 ** -19 is below the least weight, so every class is a whole number.
_SHIFT: Final = 19
#: What a weight of 1 counts for.
_ONE: Final = 1024 << _SHIFT


def weight_class(weight: float) -> int:
    """The whole number that a weight counts for: rounded up to its class, 1.0 being exact.

    >>> weight_class(3.0) / weight_class(1.0), weight_class(8) // weight_class(1.0)
    (3.3671875, 8)
    """
    fraction, exponent = math.frexp(weight)
    scaled = fraction * 1024
    end = next(end for end in _CLASS_ENDS if scaled <= end)
    return end << (exponent + _SHIFT)


def _digest(weights: Mapping[str, float], capacities: Mapping[str, float]) -> str:
    """A short text that differs when what is configured does; empty when all counts 1."""
    told = [
        f"{kind} {key} {number!r}"
        for kind, numbers in (("weight", weights), ("capacity", capacities))
        for key, number in sorted(numbers.items())
        if number != 1.0
    ]
    text = "\n".join(told).encode("utf-8", "surrogatepass")
    return hashlib.blake2s(text, digest_size=4).hexdigest() if told else ""


def check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights that the strategy cannot use, by raising an AllocationError."""
    Weighted(weights=weights)


class Weighted(CappedHash):
    """CAPPED_HASH with loads and capacities that are configured, or loads that are published."""

    name = "WEIGHTED"
    #: Published weights are used, and not known yet.
    _waiting = False

    def __init__(
        self,
        *,
        weights: Mapping[str, float] | Literal["published"] | None = None,
        capacities: Mapping[str, float] | None = None,
        weights_topic: str = WEIGHTS_TOPIC,
    ) -> None:
        published = weights == PUBLISHED
        self.capacities = self._numbers("capacities", capacities)
        # Exact, so that equal quotients are seen to be equal by every member.
        self._capacities = {stem: Fraction(number) for stem, number in self.capacities.items()}
        self._set_weights(None if published else weights)
        if published:
            self.weights_topic = weights_topic
            self._waiting = True
            own_topic = {} if weights_topic == WEIGHTS_TOPIC else {weights_topic: 0.0}
            digest = _digest(own_topic, self.capacities)
            self.name = f"{type(self).name}.{PUBLISHED}{digest and f'.{digest}'}"
        elif digest := _digest(self.weights, self.capacities):
            self.name = f"{type(self).name}.{digest}"

    def _set_weights(self, weights: object) -> None:
        self.weights = self._numbers("weights", weights)
        for path in self.weights:
            try:
                parse_queue(path)
            except ConfigurationError as error:
                raise AllocationError(f"strategy '{self.name}': option weights: {error}") from error
        self._units = {path: weight_class(weight) for path, weight in self.weights.items()}

    def with_weights(self, weights: Mapping[str, float]) -> Self:
        """The same strategy, by name too, with these published weights."""
        other = copy(self)
        other._set_weights(weights)  # noqa: SLF001 - the copy is of this class
        other._waiting = False  # noqa: SLF001
        return other

    def shares_beside(self, snapshot: Snapshot, held: Mapping[str, int]) -> Shares:
        """As CAPPED_HASH; refused while published weights are not known."""
        self._check_known()
        return super().shares_beside(snapshot, held)

    def explain_beside(
        self, snapshot: Snapshot, queue: MessageQueue, held: Mapping[str, int]
    ) -> Explanation:
        """As CAPPED_HASH; refused while published weights are not known."""
        self._check_known()
        return super().explain_beside(snapshot, queue, held)

    def _check_known(self) -> None:
        if self._waiting:
            raise AllocationError(
                f"strategy '{self.name}': the weights are published in topic "
                f"'{self.weights_topic}', and only running consumers read them; to compute with "
                "them, give the weights themselves"
            )

    def check_names(self, members: Iterable[str]) -> None:
        """Refuse a capacity for a member that the group does not have."""
        self._refuse_strangers("a capacity is", self.capacities, members)

    def unit_of(self, queue: MessageQueue) -> int:
        """The class of the queue's weight."""
        return self._units.get(queue.path, _ONE) if self._units else _ONE

    def capacity_of(self, member: str) -> Fraction:
        """The configured capacity; the full id goes before its stem."""
        found = self._capacities.get(member) or self._capacities.get(stem_of(member))
        return found or Fraction(1)

    def _facts(
        self, queue: MessageQueue, members: Sequence[str], owner: int, loads: Sequence[int]
    ) -> dict[str, Any]:
        capacities = [self.capacity_of(member) for member in members]
        fair = sum(loads) * capacities[owner] / sum(capacities)
        return {
            "weight": self.weights.get(queue.path, 1.0),
            "counts_as": self.unit_of(queue) / _ONE,
            "load": loads[owner] / _ONE,
            "fair_load": float(fair / _ONE),
            "capacity": float(capacities[owner]),
        }

    def _words(self, data: Mapping[str, Any]) -> str:
        return (
            f"the queue's weight {data['weight']:g} counts as {data['counts_as']:.4g}, and the "
            f"owner has a load of {data['load']:.4g} where {data['fair_load']:.4g} would be exactly "
            f"its part (capacity {data['capacity']:g})"
        )

    def _numbers(self, option: str, given: object) -> dict[str, float]:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise AllocationError(
                f"strategy '{self.name}': option {option} is a {type(given).__name__}; give a "
                f"mapping from {'queue path' if option == 'weights' else 'client id'} to number"
                f"{', or ' + repr(PUBLISHED) if option == 'weights' else ''}"
            )
        for key, number in given.items():
            usable = isinstance(number, int | float) and not isinstance(number, bool)
            if not isinstance(key, str) or not usable or not _LEAST <= number <= _MOST:
                raise AllocationError(
                    f"strategy '{self.name}': option {option} gives {key!r} the value {number!r}; "
                    f"give a number from {_LEAST:g} to {_MOST:g} (an idle queue has a small "
                    "weight, not none)"
                )
        return {key: float(number) for key, number in given.items()}
