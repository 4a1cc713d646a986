"""The clusters that the demo can run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

__all__ = ["ENGINES", "Broker", "Cluster", "Engine", "default_engine"]


class Broker(Protocol):
    """A broker that runs."""

    @property
    def name(self) -> str:
        """As in `MessageQueue.broker`."""

    @property
    def address(self) -> str:
        """`host:port`."""


class Cluster(Protocol):
    """What an engine starts."""

    @property
    def nameserver(self) -> str:
        """`host:port`."""

    @property
    def brokers(self) -> Sequence[Broker]:
        """All of them."""

    def start(self) -> object:
        """Start it and wait until it serves."""

    def stop(self) -> None:
        """Stop it; harmless when it does not run."""

    def check(self) -> None:
        """EngineError when a part of it has ended by itself."""

    def create_topic(self, topic: str, queues: int = 8) -> None:
        """Make a topic with so many queues on each broker, known when this returns."""


class Engine(msgspec.Struct, frozen=True):
    """A kind of cluster: its name for people, its versions, newest first, and how it is made."""

    title: str
    versions: Callable[[], Sequence[str]]
    make: Callable[[str, int], Cluster]


def _apache_versions() -> Sequence[str]:
    from gimbalmq.testing.jars import VERSIONS

    return VERSIONS


def _apache(version: str, brokers: int) -> Cluster:
    from gimbalmq.testing.apache import ApacheRocketMQ

    return ApacheRocketMQ(version, brokers)


#: Engines by name; the first is the default.
ENGINES: Final[dict[str, Engine]] = {
    "apache": Engine("Apache RocketMQ", _apache_versions, _apache),
}


def default_engine() -> str:
    """The name of the engine that is used when none is asked for."""
    return next(iter(ENGINES))
