"""Rules that say which zone a queue or a member is in, in forms that members can compare.

A rule is a mapping by name, `prefix:TEXT` (the zone is what stands before that text in the name), or
a function of the user's. The first two say themselves what they do; what a function does cannot be
seen from outside, so it needs a version that its author gives. The digest of both rules is part of
the strategy's name: members whose rules differ do not take each other for partners.

The name of a queue is that of its broker, the name of a member the stem of its client id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gimbalmq.core.identity import stem_of
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = ["ZoneOfMember", "ZoneOfQueue", "Zones"]

ZoneOfQueue: TypeAlias = Callable[[MessageQueue], str] | Mapping[str, str] | str
ZoneOfMember: TypeAlias = Callable[[str], str] | Mapping[str, str] | str

_PREFIX: Final = "prefix:"


class Zones:
    """Both rules, and what tells them from others."""

    def __init__(
        self, zone_of_queue: ZoneOfQueue, zone_of_member: ZoneOfMember, version: str | None
    ) -> None:
        if version == "":
            raise AllocationError(
                f"strategy 'ZONED': option zones_version is {version!r}; give a text that changes "
                "when one of the functions does"
            )
        self._queue, told_of_queue = _rule("queue", zone_of_queue, version)
        self._member, told_of_member = _rule("member", zone_of_member, version)
        #: Which rules are functions without a version, so that nobody can compare them.
        self.unnamed = tuple(
            f"zone_of_{kind}"
            for kind, told in (("queue", told_of_queue), ("member", told_of_member))
            if not told
        )
        text = f"{told_of_queue}\n\n{told_of_member}".encode("utf-8", "surrogatepass")
        #: Differs where what is configured does; empty when something cannot be compared.
        self.digest = "" if self.unnamed else hashlib.blake2s(text, digest_size=4).hexdigest()

    def of_queue(self, queue: MessageQueue) -> str:
        """The zone of a queue."""
        return _checked("queue", queue.path, self._queue(queue))

    def of_member(self, client_id: str) -> str:
        """The zone of a member."""
        return _checked("member", client_id, self._member(client_id))


def _checked(kind: str, name: str, zone: object) -> str:
    if not isinstance(zone, str) or not zone:
        raise AllocationError(
            f"strategy 'ZONED': zone_of_{kind} returned {zone!r} for {kind} '{name}'; every {kind} "
            "must be in a zone with a name"
        )
    return zone


def _rule(kind: str, given: object, version: str | None) -> tuple[Callable[[Any], object], str]:
    """What to call, and the text that says all about it; empty when nothing does."""
    name = _broker_of if kind == "queue" else stem_of
    match given:
        case str() if given.removeprefix(_PREFIX) not in {"", given}:
            separator = given.removeprefix(_PREFIX)
            return lambda thing: name(thing).partition(separator)[0], given
        case Mapping() if all(isinstance(part, str) for item in given.items() for part in item):
            zones = dict(given)
            told = "\n".join(f"{key} in {zone}" for key, zone in sorted(zones.items()))
            return lambda thing: zones.get(name(thing)), f"map\n{told}"
        case _ if callable(given):
            return given, "" if version is None else f"function {version}"
    raise AllocationError(
        f"strategy 'ZONED': option zone_of_{kind} is {given!r}; give a function that returns the "
        f"name of the zone, a mapping from {'broker' if kind == 'queue' else 'client id'} to zone, "
        "or 'prefix:' and the text that ends the zone's name"
    )


def _broker_of(queue: MessageQueue) -> str:
    return queue.broker
