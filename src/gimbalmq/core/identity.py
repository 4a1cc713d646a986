"""Who a member is: building client ids, and reading what a client id says.

Members of a group know nothing of each other but their ids, so what a member can do has to stand
in its id. Ours end in a capability token, `@gmq1-<STRATEGY>`, before the `@STREAM` that stream
clients carry; an id without the token is foreign, most likely a Java client. `+rejoin30` after the
strategy says that the member waits 30 s for one that is gone. From the ids alone every member
decides alike whether the group may use a strategy that Java does not know, and whether it waits.

Decides the text of ids and what follows from a list of them. Must not know where an address, a
process id or a random part comes from: they are given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError

__all__ = [
    "FALLBACK_STRATEGY",
    "JAVA_STRATEGIES",
    "NEARBY_PREFIX",
    "TOKEN_VERSION",
    "Agreement",
    "Capability",
    "agreed_rejoin",
    "agreed_strategy",
    "all_ours",
    "allocation_members",
    "capability",
    "check_stem",
    "check_strategy_name",
    "default_stem",
    "is_java_strategy",
    "member_id",
    "repeated_ids",
    "shared_id_warning",
    "stem_of",
]

#: Version of the rules by which members with a token behave; a new one gets a new number.
TOKEN_VERSION: Final = 1

#: Every client knows it, and it is Java's default: what a mixed group falls back to.
FALLBACK_STRATEGY: Final = "AVG"

#: `getName()` of the strategies that Java clients have; the nearby one is named after its inner.
JAVA_STRATEGIES: Final = frozenset(
    {"AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONSISTENT_HASH"}
)
NEARBY_PREFIX: Final = "MACHINE_ROOM_NEARBY-"

_STREAM_SUFFIX: Final = "@STREAM"
_TOKEN: Final = re.compile(
    r"(?P<stem>.+)@gmq(?P<version>[1-9][0-9]{0,8})-(?P<strategy>[^@+\s]+)"
    r"(?:\+rejoin(?P<rejoin>[0-9]{1,9}(?:\.[0-9]{1,3})?))?"
)
_TOKEN_INSIDE: Final = re.compile(r"@gmq[0-9]+-")


class Capability(msgspec.Struct, frozen=True):
    """What the token in a client id promises."""

    version: int
    strategy: str
    #: How long it counts a member that is gone as one that will come back; None: not at all.
    rejoin_grace_s: float | None = None


class Agreement(msgspec.Struct, frozen=True):
    """The strategy that a group uses, and why it is not the wanted one ("" when it is)."""

    strategy: str
    reason: str = ""


def default_stem(ip: str, pid: int, random_part: str) -> str:
    """The stem of a client that was given no name: unique per process and start.

    Like Java's default, with a random part where Java has a clock, because containers often share
    address and process id (and then silently share their queues).

    >>> default_stem("10.0.0.7", 4711, "5f3a9c")
    '10.0.0.7@4711#5f3a9c'
    """
    stem = f"{ip}@{pid}#{random_part}"
    check_stem(stem)
    return stem


def check_stem(stem: str) -> None:
    """Refuse a stem that could not be found again in the id built from it.

    Raises:
        ConfigurationError: it is empty, holds white space or control characters (ids are printed,
            logged and listed), is not encodable, or holds a token of its own.
    """
    if not stem:
        raise ConfigurationError("client_id is empty: give a name that is unique in the group")
    if bad := _first_unprintable(stem):
        raise ConfigurationError(
            f"client_id {stem!r} contains {bad!r}: white space and control characters cannot be "
            "told apart where ids are listed; use letters, digits and . - _ @ #"
        )
    if _TOKEN_INSIDE.search(stem):
        raise ConfigurationError(
            f"client_id '{stem}' contains '@gmq', a version and '-', with which the id that goes "
            "over the wire marks its strategy: give only the part before it"
        )


def check_strategy_name(name: str) -> None:
    """Refuse a strategy name that could not be carried in a client id."""
    if not name or "@" in name or "+" in name or _first_unprintable(name):
        raise ConfigurationError(
            f"strategy name {name!r} cannot be part of a client id: it must not be empty, and "
            "must contain neither '@' nor '+' nor white space nor control characters"
        )


def _first_unprintable(text: str) -> str:
    # isprintable is False for controls, separators other than the space, and lone surrogates.
    return next((one for one in text if one.isspace() or not one.isprintable()), "")


def member_id(
    stem: str, strategy: str, *, stream: bool = False, rejoin_grace_s: float | None = None
) -> str:
    """The client id that goes over the wire.

    >>> member_id("billing-1", "AVG")
    'billing-1@gmq1-AVG'
    >>> member_id("billing-1", "CAPPED_HASH", stream=True)
    'billing-1@gmq1-CAPPED_HASH@STREAM'
    >>> member_id("billing-1", "AVG", rejoin_grace_s=30.0)
    'billing-1@gmq1-AVG+rejoin30'
    """
    check_stem(stem)
    check_strategy_name(strategy)
    waits = ""
    if rejoin_grace_s is not None:
        waits = f"+rejoin{rejoin_grace_s:.3f}".rstrip("0").rstrip(".")
    suffix = _STREAM_SUFFIX if stream else ""
    return f"{stem}@gmq{TOKEN_VERSION}-{strategy}{waits}{suffix}"


def capability(client_id: str) -> Capability | None:
    """Read the token of a client id; None for a foreign one.

    >>> capability("billing-1@gmq1-AVG+rejoin30")
    Capability(version=1, strategy='AVG', rejoin_grace_s=30.0)
    >>> capability("10.0.0.7@4711#81234567890") is None
    True
    """
    found = _TOKEN.fullmatch(client_id.removesuffix(_STREAM_SUFFIX))
    if found is None:
        return None
    waits = found["rejoin"]
    return Capability(
        int(found["version"]), found["strategy"], None if waits is None else float(waits)
    )


def stem_of(client_id: str) -> str:
    """The part that the user chose; a foreign id is its own stem.

    >>> stem_of("billing-1@gmq1-AVG"), stem_of("10.0.0.7@4711#8")
    ('billing-1', '10.0.0.7@4711#8')
    """
    if "@gmq" not in client_id:  # most ids of a mixed group; spares the pattern
        return client_id
    found = _TOKEN.fullmatch(client_id.removesuffix(_STREAM_SUFFIX))
    return client_id if found is None else found["stem"]


def is_java_strategy(name: str) -> bool:
    """Whether Java clients have this strategy, so that no agreement is needed to use it.

    >>> is_java_strategy("MACHINE_ROOM_NEARBY-AVG"), is_java_strategy("CAPPED_HASH")
    (True, False)
    """
    while name.startswith(NEARBY_PREFIX):
        name = name.removeprefix(NEARBY_PREFIX)
    return name in JAVA_STRATEGIES


def agreed_strategy(member_ids: Iterable[str], wanted: str) -> Agreement:
    """The strategy that a member which wants `wanted` has to use in this group.

    Java's six are always used as wanted: they are known everywhere. Any other one is used only
    when every id carries our token with that same strategy; otherwise it is AVG for everyone, at
    the same moment, because everyone reads the same ids.

    >>> agreed_strategy(["a@gmq1-CAPPED_HASH", "b@gmq1-CAPPED_HASH"], "CAPPED_HASH").strategy
    'CAPPED_HASH'
    >>> agreed_strategy(["a@gmq1-CAPPED_HASH", "10.0.0.7@4711#8"], "CAPPED_HASH").strategy
    'AVG'
    """
    if is_java_strategy(wanted):
        return Agreement(wanted)
    for client_id in member_ids:
        found = capability(client_id)
        if found is not None and (found.version, found.strategy) == (TOKEN_VERSION, wanted):
            continue
        if found is None:
            why = f"member '{client_id}' does not say that it runs {wanted} (a Java client?)"
        elif found.version != TOKEN_VERSION:
            why = f"member '{client_id}' follows version {found.version} of the rules"
        else:
            why = f"member '{client_id}' runs {found.strategy}"
        return Agreement(
            FALLBACK_STRATEGY,
            f"{why}: this group uses {FALLBACK_STRATEGY} instead of {wanted} "
            f"until every member runs {wanted}",
        )
    return Agreement(wanted)


def agreed_rejoin(member_ids: Iterable[str], client_id: str) -> str:
    """Why this group does not wait for members that are gone; "" when every id says it does.

    Every id has to promise the same as `client_id`, which does: strategy, version and time.

    >>> agreed_rejoin(["a@gmq1-AVG+rejoin30", "b@gmq1-AVG+rejoin30"], "a@gmq1-AVG+rejoin30")
    ''
    >>> print(agreed_rejoin(["a@gmq1-AVG+rejoin30", "b@gmq1-AVG"], "a@gmq1-AVG+rejoin30"))
    member 'b@gmq1-AVG' has no rejoin_grace_s: nobody waits for members that are gone
    """
    mine = capability(client_id)
    for one in member_ids:
        found = capability(one)
        if found == mine:
            continue
        if found is None:
            why = "is foreign (a Java client?)"
        elif found.version != TOKEN_VERSION:
            why = f"follows version {found.version} of the rules"
        elif found.rejoin_grace_s is None:
            why = "has no rejoin_grace_s"
        elif mine is not None and found.strategy != mine.strategy:
            why = f"runs {found.strategy}"
        else:
            why = f"has rejoin_grace_s={found.rejoin_grace_s:g}"
        return f"member '{one}' {why}: nobody waits for members that are gone"
    return ""


def all_ours(member_ids: Iterable[str]) -> bool:
    """Whether every id carries our token."""
    return all(capability(client_id) is not None for client_id in member_ids)


def allocation_members(member_ids: Iterable[str]) -> tuple[str, ...]:
    """The ids to allocate over when a repeated id has stayed in the list after asking again.

    A group that is all ours leaves repetitions out, and no queue stays without owner. Beside a
    foreign member the list is used as it is, as Java does: a lone member that left them out would
    own queues that a Java member owns too.

    >>> allocation_members(["a@gmq1-AVG", "a@gmq1-AVG", "b@gmq1-AVG"])
    ('a@gmq1-AVG', 'b@gmq1-AVG')
    >>> allocation_members(["a@gmq1-AVG", "a@gmq1-AVG", "10.0.0.7@4711#8"])
    ('a@gmq1-AVG', 'a@gmq1-AVG', '10.0.0.7@4711#8')
    """
    listed = tuple(member_ids)
    return tuple(dict.fromkeys(listed)) if all_ours(listed) else listed


def repeated_ids(member_ids: Iterable[str]) -> tuple[str, ...]:
    """Those that are listed more than once, in order.

    >>> repeated_ids(["a", "b", "a", "c", "a"])
    ('a',)
    """
    counts = Counter(member_ids)
    return tuple(sorted(one for one, count in counts.items() if count > 1))


def shared_id_warning(repeated: Collection[str], me: str) -> str:
    """What it means that ids stay listed more than once.

    >>> print(shared_id_warning(["a"], "a")[:68])
    another process uses this member's client id 'a': both consume the s
    """
    if me not in repeated:
        names = ", ".join(f"'{one}'" for one in repeated)
        return (
            f"several processes use the client id {names}: they consume the same queues, and queue "
            "locks do not keep them apart; give each its own client_id (setInstanceName in Java)"
        )
    return (
        f"another process uses this member's client id '{me}': both consume the same queues, and "
        "queue locks do not keep them apart, since brokers know members by their id alone; give "
        "each its own client_id. (After a broken connection it may be this process itself: brokers "
        "list the old connection for two minutes at most.)"
    )
