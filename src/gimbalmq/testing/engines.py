"""The clusters that commands, the demo and tests can run on, by name: the one list of them.

Decides what the engines are called and how each is made; what they then do is their own business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from gimbalmq.broker.access import Account
from gimbalmq.broker.store import FlushPolicy, StoreOptions
from gimbalmq.broker.tls import ServerTls
from gimbalmq.errors import ConfigurationError

__all__ = [
    "DEFAULT_ENGINE",
    "ENGINES",
    "Broker",
    "Cluster",
    "ClusterOptions",
    "EmbeddedOptions",
    "Engine",
]


class Broker(Protocol):
    """A broker that runs."""

    @property
    def name(self) -> str:
        """As in `MessageQueue.broker`."""

    @property
    def address(self) -> str:
        """`host:port`."""

    @property
    def running(self) -> bool:
        """Whether it serves."""


class Cluster(Protocol):
    """What an engine starts."""

    @property
    def nameserver(self) -> str:
        """`host:port`, several of them joined by `;`."""

    @property
    def brokers(self) -> Sequence[Broker]:
        """All of them."""

    def start(self) -> object:
        """Start it and wait until it serves."""

    def stop(self) -> None:
        """Stop it; harmless when it does not run."""

    def check(self) -> None:
        """EngineError when a part of it has ended by itself."""

    def kill(self, name: str) -> None:
        """End a broker, or `nameserver`, as a crash would."""

    def restart(self, name: str) -> None:
        """Start a broker, or `nameserver`, again on its port and data."""

    def create_topic(self, topic: str, queues: int = 8) -> None:
        """Make a topic with so many queues on each broker, known when this returns."""


class EmbeddedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What only the embedded cluster offers; see `EmbeddedCluster`."""

    host: str = "127.0.0.1"
    advertise: str | None = None
    flush: FlushPolicy | None = None
    faithful: bool = False
    accounts: tuple[Account, ...] = ()
    tls: ServerTls | None = None


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to make, whatever the engine.

    `version` is one of the engine's (None: its newest), `nameserver_port` 0 any free port.
    `processes` gives each server a process of its own where that is a choice.
    """

    version: str | None = None
    brokers: int = 1
    data: Path | None = None
    nameserver_port: int = 0
    processes: bool = False
    embedded: EmbeddedOptions = EmbeddedOptions()


class Engine(msgspec.Struct, frozen=True):
    """A kind of cluster: its name for people, its versions, newest first, and how it is made."""

    title: str
    versions: Callable[[], Sequence[str]]
    build: Callable[[ClusterOptions], Cluster]

    def make(self, options: ClusterOptions) -> Cluster:
        """A cluster, not started yet.

        Raises:
            ConfigurationError: the engine does not have that version.
        """
        known = self.versions()
        if options.version is not None and options.version not in known:
            raise ConfigurationError(
                f"{self.title} has no version '{options.version}': there is {', '.join(known)}"
            )
        return self.build(options)


def _embedded_versions() -> Sequence[str]:
    from gimbalmq import __version__

    return (__version__,)


def _embedded(options: ClusterOptions) -> Cluster:
    from gimbalmq.broker.cluster import EmbeddedCluster

    own = options.embedded
    return EmbeddedCluster(
        options.brokers,
        options.data,
        nameserver_port=options.nameserver_port,
        processes=options.processes,
        host=own.host,
        advertise=own.advertise,
        store=None if own.flush is None else StoreOptions(flush=own.flush),
        faithful=own.faithful,
        accounts=own.accounts,
        tls=own.tls,
    )


def _apache_versions() -> Sequence[str]:
    from gimbalmq.testing.jars import VERSIONS

    return VERSIONS


def _apache(options: ClusterOptions) -> Cluster:
    from gimbalmq.testing.apache import ApacheRocketMQ

    if options.embedded != EmbeddedOptions():
        raise ConfigurationError(
            "interface, flush policy, accounts, TLS and faithful are options of the embedded "
            "cluster: leave them out for Apache RocketMQ"
        )
    return ApacheRocketMQ(
        options.version or _apache_versions()[0],
        options.brokers,
        options.data,
        nameserver_port=options.nameserver_port,
    )


#: Engines by name.
ENGINES: Final[dict[str, Engine]] = {
    "embedded": Engine("the embedded cluster", _embedded_versions, _embedded),
    "apache": Engine("Apache RocketMQ", _apache_versions, _apache),
}

#: What is used when no engine is asked for.
DEFAULT_ENGINE: Final = "embedded"
