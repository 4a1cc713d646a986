"""What one server of a cluster is made of, in a form that another process can be told."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.broker.access import Account
from gimbalmq.broker.peer import Limits
from gimbalmq.broker.ports import listen
from gimbalmq.broker.services import BrokerService, NameServerService
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store import StoreOptions
from gimbalmq.broker.tls import ServerTls
from gimbalmq.errors import ConfigurationError

__all__ = [
    "NAMESERVER",
    "BrokerPlan",
    "NameServerPlan",
    "Plan",
    "Service",
    "broker_names",
    "decode_plan",
    "encode_plan",
    "nameserver_ports",
]

NAMESERVER: Final = "nameserver"

Service = NameServerService | BrokerService


class _Place(msgspec.Struct, dict=True, kw_only=True):
    """Where a server listens and keeps its data."""

    name: str
    #: The interface that it listens on.
    host: str
    port: int
    folder: str
    limits: Limits = Limits()
    #: What clients call it by, where that is not the interface: 0.0.0.0 is no address to connect to.
    advertised: str = ""
    #: Take TLS beside plain text.
    tls: ServerTls | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{self.advertised or self.host}:{self.port}"

    def __post_init__(self) -> None:
        #: Reserved for the first start; later ones open the port again.
        self.listener: socket.socket | None = None

    def tls_context(self) -> ssl.SSLContext | None:
        """What its sockets need, if it takes TLS."""
        return None if self.tls is None else self.tls.context()

    def take_listener(self) -> socket.socket:
        """A listening socket on this server's port."""
        listener, self.listener = self.listener, None
        return listener or listen(self.host, self.port, what=f"'{self.name}'")

    def release_listener(self) -> None:
        """Let another process have the port."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None


class NameServerPlan(_Place, kw_only=True, tag=True):
    """A name server."""

    def build(self) -> Service:
        """The server, ready to start in a running event loop."""
        tls = self.tls_context()
        return NameServerService(
            self.take_listener(), folder=Path(self.folder), limits=self.limits, tls=tls
        )


class BrokerPlan(_Place, kw_only=True, tag=True):
    """A broker."""

    nameservers: tuple[str, ...]
    settings: BrokerSettings
    store: StoreOptions
    accounts: tuple[Account, ...] = ()
    #: Where to answer Prometheus on this machine; 0: any free port.
    metrics_port: int | None = None

    def build(self) -> Service:
        """The server, ready to start in a running event loop."""
        if ip_address(self.advertised or self.host).is_unspecified:
            raise ConfigurationError(
                f"broker '{self.name}' listens on every interface ({self.host}): say which address "
                "clients are to use (advertise)"
            )
        tls = self.tls_context()
        listener = self.take_listener()
        try:
            return BrokerService(
                listener,
                msgspec.structs.replace(self.settings, host=self.advertised or self.host),
                self.nameservers,
                folder=Path(self.folder),
                store_options=self.store,
                accounts=self.accounts,
                limits=self.limits,
                tls=tls,
                metrics_port=self.metrics_port,
            )
        except BaseException:
            listener.close()
            raise


Plan = NameServerPlan | BrokerPlan


def encode_plan(plan: Plan) -> bytes:
    """A plan as text for another process."""
    return msgspec.json.encode(plan)


def decode_plan(data: bytes) -> Plan:
    """Read a plan."""
    plan: Plan = msgspec.json.decode(data, type=Plan)
    return plan


def nameserver_ports(count: int, first_port: int) -> dict[str, int]:
    """The names of a cluster's name servers, and the port of each; 0 means any free one.

    >>> nameserver_ports(2, 9876)
    {'nameserver': 9876, 'nameserver-2': 0}
    """
    if not 1 <= count <= 9:
        raise ConfigurationError(f"nameservers={count}: choose 1 to 9")
    others = {f"{NAMESERVER}-{number}": 0 for number in range(2, count + 1)}
    return {NAMESERVER: first_port, **others}


def broker_names(brokers: int | Iterable[str]) -> tuple[str, ...]:
    """The names of a cluster's brokers, from their number or as given.

    >>> broker_names(2)
    ('broker-a', 'broker-b')
    """
    if isinstance(brokers, int):
        if not 1 <= brokers <= 26:
            raise ConfigurationError(f"brokers={brokers}: choose 1 to 26, or give their names")
        return tuple(f"broker-{chr(ord('a') + number)}" for number in range(brokers))
    names = tuple(brokers)
    if not names or len(set(names)) != len(names) or any(map(_is_reserved, names)):
        raise ConfigurationError(
            f"brokers={names}: give at least one name, each once, and none that begins with '{NAMESERVER}'"
        )
    return names


def _is_reserved(name: str) -> bool:
    return name.startswith(NAMESERVER)
