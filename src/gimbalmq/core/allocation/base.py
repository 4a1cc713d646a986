"""The seam between strategies and everyone who uses them.

A strategy is a pure function from a snapshot to the assignment of the whole group. This module
says what a strategy looks like, runs one over several topics, checks what foreign ones answer,
and finds them by name. It must not know any particular strategy.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import msgspec

from gimbalmq.core.allocation.snapshot import Assignment, Shares, Snapshot
from gimbalmq.core.identity import NEARBY_PREFIX, check_strategy_name, stem_of
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "Assignment",
    "BuiltIn",
    "Explanation",
    "Shares",
    "Snapshot",
    "Strategy",
    "StrategyFactory",
    "add_built_in",
    "assign",
    "explain",
    "register",
    "shares_of",
    "strategy_named",
    "strategy_names",
    "unknown_strategy",
]


@runtime_checkable
class Strategy(Protocol):
    """A rule for sharing out queues.

    `allocate` must be deterministic and depend on nothing but the snapshot, because every member
    of the group runs it alone and all have to come to the same answer.

    Two attributes are optional. `cross_topic = True`: hand over all topics in one snapshot, not
    one after the other. `explain(snapshot, queue) -> Explanation`: say why a queue is where it is.

        class Dealt:
            name = "DEALT"

            def allocate(self, snapshot):
                step = len(snapshot.members)
                return {
                    member: snapshot.queues[place::step]
                    for place, member in enumerate(snapshot.members)
                }

        consumer = PushConsumer("billing", allocation=Dealt())
    """

    @property
    def name(self) -> str:
        """The name by which members recognise each other's strategy."""
        ...

    def allocate(self, snapshot: Snapshot) -> Assignment:
        """Share out `snapshot.queues`; members that get nothing may be left out."""
        ...


class Explanation(msgspec.Struct, frozen=True):
    """Why a queue belongs to its owner.

    owner: the member, or None when the queue belongs to nobody.
    rule: the strategy's name.
    data: the numbers that the rule was applied to.
    sentence: all of it in words.

        explanation = balance.explain("AVG", queue=queue, queues=queues, members=["ann", "bob"])
        print(explanation.owner, explanation.sentence)
    """

    owner: str | None
    rule: str
    data: dict[str, Any]
    sentence: str


class BuiltIn(ABC):
    """What the strategies of this package share: one validation, sparse shares, explanations."""

    name: str
    cross_topic: bool = False
    #: Where members read weights while they run; None for strategies that need none.
    weights_topic: str | None = None
    #: What members cannot compare by the name, and what to do about it; "" when that is nothing.
    incomparable: str = ""

    def with_weights(self, weights: Mapping[str, float]) -> Self:
        """The same strategy with these weights, where it has a `weights_topic`."""
        del weights
        return self

    @abstractmethod
    def shares(self, snapshot: Snapshot) -> Shares:
        """The assignment without idle members, for a snapshot that passed its check.

        Leaving them out is what keeps a strategy inside another one (rooms, topics) linear.
        """

    @abstractmethod
    def explain(self, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
        """Why `queue` is where it is, from the rule, not from a search in the result."""

    def check_names(self, members: Iterable[str]) -> None:  # noqa: B027 most have no names
        """Refuse options that name members which the group does not have."""

    def _refuse_strangers(self, what: str, named: Iterable[str], members: Iterable[str]) -> None:
        """Refuse a name that is no member's; a member goes by its client id or by its stem."""
        known = set(members)
        known.update(map(stem_of, tuple(known)))
        for name in named:
            if name not in known:
                raise AllocationError(
                    f"strategy '{self.name}': {what} configured for '{name}', which is not "
                    "a member of the group; correct the name or leave the entry out"
                )

    def allocate(self, snapshot: Snapshot) -> Shares:
        """The assignment, with every member as a key.

        Raises:
            AllocationError: the snapshot has no queues, no members, or an empty client id.
        """
        snapshot.check()
        return _complete(snapshot.members, self.shares(snapshot))


def assign(strategy: Strategy, snapshot: Snapshot) -> Shares:
    """Run a strategy over a snapshot of one or several topics.

    Topic by topic, unless the strategy is `cross_topic`; a member's share lists its queues in the
    order of topics. Every member is a key. What a strategy from outside this package answers is
    checked: it may name neither unknown members nor unknown queues, nor give a queue twice.
    """
    snapshot.check()
    parts = (snapshot,) if getattr(strategy, "cross_topic", False) else snapshot.by_topic()
    if len(parts) == 1:
        return _complete(snapshot.members, shares_of(strategy, snapshot))
    gathered: dict[str, list[MessageQueue]] = {}
    for part in parts:
        for member, share in shares_of(strategy, part).items():
            gathered.setdefault(member, []).extend(share)
    return _complete(snapshot.members, {member: tuple(share) for member, share in gathered.items()})


def shares_of(strategy: Strategy, snapshot: Snapshot) -> Shares:
    """The assignment of one snapshot; members without queues may be missing."""
    if isinstance(strategy, BuiltIn):
        return strategy.shares(snapshot)
    return _checked(strategy.name, snapshot, strategy.allocate(snapshot))


def explain(strategy: Strategy, snapshot: Snapshot, queue: MessageQueue) -> Explanation:
    """Why `queue` belongs to whom it belongs to, under this strategy."""
    snapshot.check()
    snapshot.position(queue)
    if not getattr(strategy, "cross_topic", False):
        snapshot = next(part for part in snapshot.by_topic() if part.queues[0].topic == queue.topic)
    own_words = getattr(strategy, "explain", None)
    if own_words is not None:
        explanation: Explanation = own_words(snapshot, queue)
        return explanation
    shares = shares_of(strategy, snapshot)
    owner = next((member for member, share in shares.items() if queue in share), None)
    whom = "nobody" if owner is None else f"'{owner}'"
    return Explanation(
        owner,
        strategy.name,
        {"queues": len(snapshot.queues), "members": len(snapshot.members)},
        f"{strategy.name} gives {queue.path} to {whom}; it does not say why.",
    )


def _complete(members: Iterable[str], shares: Shares) -> Shares:
    return {member: shares.get(member, ()) for member in members}


def _checked(name: str, snapshot: Snapshot, answer: Assignment) -> Shares:
    """The answer of a strategy that is not ours, or an error that says what is wrong with it."""
    members = set(snapshot.members)
    free = set(snapshot.queues)
    shares: Shares = {}
    for member, share in answer.items():
        if member not in members:
            raise AllocationError(
                f"strategy '{name}' gave queues to '{member}', which is not a member of group "
                f"'{snapshot.group}': it may use only snapshot.members"
            )
        shares[member] = tuple(share)
        for queue in shares[member]:
            if queue not in free:
                known = queue in snapshot.queues
                trouble = "which was given already" if known else "which is not in the snapshot"
                raise AllocationError(
                    f"strategy '{name}' gave {queue} to '{member}', {trouble}: "
                    "each of snapshot.queues may be given to one member"
                )
            free.remove(queue)
    return shares


# ---- by name ---------------------------------------------------------------------------------

#: Makes a strategy from options; a class is one.
StrategyFactory: TypeAlias = Callable[..., Strategy]
_Registered = TypeVar("_Registered", bound="Strategy | type[Strategy]")

_built_in: Final[dict[str, StrategyFactory]] = {}
_registered: Final[dict[str, Strategy | StrategyFactory]] = {}


def add_built_in(name: str, factory: StrategyFactory) -> None:
    """Make a strategy of this package known; called once for each when the package is imported."""
    _built_in[name] = factory


def register(strategy: _Registered) -> _Registered:
    """Make a strategy usable by its name; usable as a class decorator.

    Takes an object, or a class whose constructor takes the options as keywords. A second
    registration of a name replaces the first; the names of this package cannot be replaced.

        @balance.register
        class Dealt:
            name = "DEALT"

            def allocate(self, snapshot):
                step = len(snapshot.members)
                return {
                    member: snapshot.queues[place::step]
                    for place, member in enumerate(snapshot.members)
                }

        consumer = PushConsumer("billing", allocation="DEALT")
    """
    name = getattr(strategy, "name", None)
    if not isinstance(name, str) or not callable(getattr(strategy, "allocate", None)):
        raise AllocationError(
            f"{strategy!r} is not a strategy: it needs a text `name` (of the class, when a class "
            "is registered) and a method `allocate(snapshot)`"
        )
    check_strategy_name(name)
    if name in _built_in or name.startswith(NEARBY_PREFIX):
        raise AllocationError(
            f"strategy name '{name}' is taken by this package: choose another name"
        )
    _registered[name] = strategy
    return strategy


def strategy_names() -> tuple[str, ...]:
    """The names that `strategy_named` knows: Java's first, then others in order."""
    return (*_built_in, *sorted(_registered))


def strategy_named(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    """Make the strategy of that name with these options.

    `MACHINE_ROOM_NEARBY-AVG` is the nearby strategy with AVG inside, as Java names it.

    Raises:
        AllocationError: no such strategy, an option that it does not have, a missing option, or
            a value that it cannot use.
    """
    given = dict(options or {})
    if name.startswith(NEARBY_PREFIX):
        outer, inner = NEARBY_PREFIX.removesuffix("-"), name.removeprefix(NEARBY_PREFIX)
        named = given.setdefault("inner", inner)
        if inner != (named if isinstance(named, str) else getattr(named, "name", None)):
            raise AllocationError(
                f"strategy '{name}' with option inner={named!r}: the two name different inner "
                f"strategies; use '{outer}' with the option, or leave the option out"
            )
        return _construct(outer, _built_in[outer], given)
    found = _built_in.get(name) or _registered.get(name)
    if found is None:
        raise unknown_strategy(name, strategy_names())
    if isinstance(found, type) or not isinstance(found, Strategy):
        return _construct(name, found, given)
    if given:
        raise AllocationError(
            f"strategy '{name}' is registered as an object and takes no options "
            f"(given: {', '.join(sorted(given))}); register its class to give options by name"
        )
    return found


def unknown_strategy(name: str, known: Iterable[str]) -> AllocationError:
    """The error for a name that stands for no strategy."""
    return AllocationError(
        f"unknown allocation strategy '{name}': known are {', '.join(known)}; "
        "make others known with gimbalmq.balance.register"
    )


def _construct(name: str, factory: StrategyFactory, options: dict[str, Any]) -> Strategy:
    parameters = inspect.signature(factory).parameters.values()
    named = [one for one in parameters if one.kind in {one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD}]
    takes = ", ".join(one.name for one in named) or "none"
    if all(one.kind is not one.VAR_KEYWORD for one in parameters):
        for option in options.keys() - {one.name for one in named}:
            raise AllocationError(
                f"strategy '{name}' has no option '{option}'; its options: {takes}"
            )
    for one in named:
        if one.default is one.empty and one.name not in options:
            raise AllocationError(
                f"strategy '{name}' needs the option '{one.name}'; its options: {takes}"
            )
    return factory(**options)
