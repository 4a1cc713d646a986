"""Where the name servers are: given, in the environment, or known to RocketMQ's address server.

An address server answers an HTTP request with a list of name servers. Whoever uses one asks it
again from time to time (`ADDRESS_SERVER_INTERVAL_S`); a list that was given stays.
"""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError, UnreachableError
from gimbalmq.transport.address import NAMESERVER_VARIABLE, parse_nameservers, split_address

__all__ = [
    "ADDRESS_SERVER_INTERVAL_S",
    "DOMAIN_VARIABLE",
    "NameServerSource",
    "find_nameservers",
    "instance_namespace",
]

#: How often Java clients ask an address server.
ADDRESS_SERVER_INTERVAL_S: Final = 120.0
#: Java reads these as system properties `rocketmq.namesrv.domain` and `....domain.subgroup`.
DOMAIN_VARIABLE: Final = "ROCKETMQ_NAMESRV_DOMAIN"
_SUBGROUP_VARIABLE: Final = "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"
_DEFAULT_SUBGROUP: Final = "nsaddr"
_DEFAULT_PORT: Final = 8080
_ANSWER_BYTES_MAX: Final = 1 << 16
_TIMEOUT_S: Final = 3.0

_instance_endpoint: Final = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.").match


class NameServerSource(msgspec.Struct, frozen=True):
    """Addresses, or the address server (`host:port`) and path that gives them."""

    addresses: tuple[str, ...] = ()
    server: str = ""
    path: str = ""

    @property
    def changes(self) -> bool:
        """Whether to ask again from time to time."""
        return bool(self.server)

    def addresses_now(self, timeout_s: float = _TIMEOUT_S) -> tuple[str, ...]:
        """The name servers; waits for the address server if there is one.

        Raises:
            UnreachableError: it could not be asked, or gave no list of addresses.
        """
        if not self.server:
            return self.addresses
        try:
            return _parsed(_get(self.server, self.path, timeout_s))
        except (OSError, http.client.HTTPException, ConfigurationError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnreachableError(
                f"the address server http://{self.server}{self.path} gives no name servers: "
                f"{reason}",
                f"check namesrv_domain or {DOMAIN_VARIABLE}, or pass nameserver='host:9876'",
                address=self.server,
            ) from error


def find_nameservers(
    nameserver: str | None,
    domain: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> NameServerSource:
    """Where a client's name servers come from: the first of the ways in which they were given.

    The argument, `NAMESRV_ADDR`, then the address server of `domain` or of
    `ROCKETMQ_NAMESRV_DOMAIN`.

    >>> find_nameservers(None, "addresses.example.com", {}).server
    'addresses.example.com:8080'

    Raises:
        ConfigurationError: there is none of them.
    """
    if nameserver is not None and not isinstance(nameserver, str):
        raise ConfigurationError(
            f"nameserver is {nameserver!r}: give text such as '127.0.0.1:9876', and several "
            "separated by ';'"
        )
    given = os.environ if environment is None else environment
    if nameserver is None and not given.get(NAMESERVER_VARIABLE, "").strip():
        where = (domain or given.get(DOMAIN_VARIABLE, "")).strip()
        if where:
            server = where if ":" in where else f"{where}:{_DEFAULT_PORT}"
            split_address(server)
            group = given.get(_SUBGROUP_VARIABLE, "").strip() or _DEFAULT_SUBGROUP
            return NameServerSource(server=server, path=f"/rocketmq/{group}")
    return NameServerSource(parse_nameservers(nameserver, given))


def instance_namespace(
    nameserver: str | None, environment: Mapping[str, str] | None = None
) -> str | None:
    """The namespace that an instance's endpoint stands for, as in Java; None for other addresses.

    The endpoint is the argument, or else `NAMESRV_ADDR`.

    >>> instance_namespace("http://MQ_INST_12_ab.mq.example.com:80")
    'MQ_INST_12_ab'
    """
    if nameserver is None:
        given = os.environ if environment is None else environment
        nameserver = given.get(NAMESERVER_VARIABLE, "")
    found = _instance_endpoint(nameserver.strip())
    return None if found is None else found[1]


def _get(server: str, path: str, timeout_s: float) -> str:
    host, port = split_address(server)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ConfigurationError(f"it answers {answer.status} {answer.reason}")
    return body.decode("utf-8", "replace")


def _parsed(text: str) -> tuple[str, ...]:
    lines = text.strip().splitlines()
    if not lines:
        raise ConfigurationError("its list is empty")
    # Only the first line counts, as in Java.
    return parse_nameservers(lines[0], {})
