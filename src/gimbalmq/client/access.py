"""The options by which every client reaches its cluster, and what they amount to.

One list of options and one reading of them for producers, consumers and administration, on
threads and on event loops.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from gimbalmq.errors import UnreachableError
from gimbalmq.flows.route import NameServers
from gimbalmq.transport.nameservers import (
    ADDRESS_SERVER_INTERVAL_S,
    NameServerSource,
    find_nameservers,
    instance_namespace,
)
from gimbalmq.transport.reach import AddressMap, Reach, TlsFiles, reach_of
from gimbalmq.wire.names import Namespace

__all__ = ["Access", "AccessOptions", "CurrentNameServers", "client_access", "reach_options"]

_log = logging.getLogger("gimbalmq.client")


class AccessOptions(TypedDict, total=False):
    """Options that every client takes.

    `access_key` and `secret_key` sign every request, for clusters with access control. `tls` is
    True, which trusts the authorities of this system, or an `ssl.SSLContext`, which may hold a
    client certificate, too. `address_map` leads from the address that a server is known by to the
    one to connect to: a dict, or a function that gets each address before it is connected to.
    `namespace` is a prefix of topics and groups that is added and taken off again.
    `namesrv_domain` names RocketMQ's address server, which is asked where neither `nameserver`
    nor `NAMESRV_ADDR` is given. `connect_timeout_s` is how long a connection may take to be made.
    """

    access_key: str | None
    secret_key: str | None
    tls: bool | ssl.SSLContext | TlsFiles
    address_map: AddressMap | None
    namespace: str | None
    namesrv_domain: str | None
    connect_timeout_s: float


class Access(msgspec.Struct, frozen=True):
    """Where a cluster is, how to reach it and in whose name, and which part of it is meant."""

    source: NameServerSource
    reach: Reach = Reach()
    namespace: Namespace = Namespace()


def client_access(nameserver: str | None, options: Mapping[str, Any]) -> Access:
    """Read the options of a client; those that are none of `AccessOptions` are left alone.

    Raises:
        ConfigurationError: no name server is given anywhere, or an option cannot be used.
    """
    reaching = {
        name: options[name]
        for name in ("access_key", "secret_key", "tls", "address_map", "connect_timeout_s")
        if name in options
    }
    return Access(
        find_nameservers(nameserver, options.get("namesrv_domain")),
        reach_of(**reaching),
        Namespace(options.get("namespace") or instance_namespace(nameserver)),
    )


def reach_options(reach: Reach) -> AccessOptions:
    """The options that make a client reach its cluster in this way."""
    keys = reach.credentials
    return {
        "access_key": None if keys is None else keys.access_key,
        "secret_key": None if keys is None else keys.secret_key,
        "tls": reach.tls or False,
        "address_map": (
            reach.address_map if callable(reach.address_map) else dict(reach.address_map)
        ),
        "connect_timeout_s": reach.connect_timeout_s,
    }


class CurrentNameServers:
    """The name servers for callers who may wait: an address server is asked when it is time."""

    def __init__(
        self, source: NameServerSource, interval_s: float = ADDRESS_SERVER_INTERVAL_S
    ) -> None:
        self._source = source
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._known: NameServers | None = None
        self._due_at = 0.0

    def get(self) -> NameServers:
        """The list of now.

        Raises:
            UnreachableError: the address server cannot be asked, for the first time.
        """
        with self._lock:
            known, now = self._known, time.monotonic()
            if known is None:
                addresses = self._source.addresses_now()
                start = secrets.randbelow(len(addresses))
                known = self._known = NameServers(addresses, start)
                self._due_at = now + self._interval_s
            elif self._source.changes and now >= self._due_at:
                self._due_at = now + self._interval_s
                try:
                    known.replace(self._source.addresses_now())
                except UnreachableError as error:
                    _log.warning("the name servers stay as they are: %s", error)
            return known
