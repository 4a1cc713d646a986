"""Addresses: `host:port` text, and the lists in which name servers are given."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final, TypeAlias

from gimbalmq.errors import ConfigurationError, UnreachableError

__all__ = [
    "NAMESERVER_VARIABLE",
    "Where",
    "local_ip",
    "numeric",
    "parse_address",
    "parse_nameservers",
    "resolve",
    "split_address",
]

#: The environment variable that names the name servers.
NAMESERVER_VARIABLE: Final = "NAMESRV_ADDR"

#: What a socket is made with, and what it is connected to.
Where: TypeAlias = tuple[socket.AddressFamily, tuple[str, int]]


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; the last colon separates, so IPv6 needs no brackets.

    >>> split_address("127.0.0.1:9876"), split_address("[::1]:9876")
    (('127.0.0.1', 9876), ('::1', 9876))
    """
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not (separator and host and is_port and _is_host(host)):
        raise ConfigurationError(
            f"'{address}' is not an address: write host:port, for example 127.0.0.1:9876"
        )
    return host, int(port)


def _is_host(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:  # a part of the name is empty or too long
        return False
    return True


def parse_address(address: str) -> str:
    """The address in the form that everything uses as a key; checks it."""
    host, port = split_address(address.strip().removeprefix("http://"))
    if "," in host:
        raise ConfigurationError(f"'{address}' is not an address: several are separated by ';'")
    return f"{host}:{port}"


def parse_nameservers(
    nameserver: str | None, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The name servers to ask, from the argument or else from `NAMESRV_ADDR`.

    >>> parse_nameservers("a:9876; b:9876")
    ('a:9876', 'b:9876')
    """
    text = nameserver
    if text is None:
        text = (os.environ if environment is None else environment).get(NAMESERVER_VARIABLE)
    addresses = tuple(parse_address(part) for part in (text or "").split(";") if part.strip())
    if not addresses:
        raise ConfigurationError(
            "no name server is known: pass nameserver='host:9876' (on the command line --nameserver "
            "host:9876; several are separated by ';'), set the environment variable "
            f"{NAMESERVER_VARIABLE}, or name RocketMQ's address server with namesrv_domain or "
            "ROCKETMQ_NAMESRV_DOMAIN"
        )
    return tuple(dict.fromkeys(addresses))


def numeric(address: str) -> Where | None:
    """Where an address is whose host is given by its number; None for a name, to be resolved."""
    host, port = split_address(address)
    try:
        return _first_found(host, port, socket.AI_NUMERICHOST)
    except OSError:
        return None


def resolve(address: str) -> Where:
    """Where an address is; waits for the resolver if its host is given by name.

    Raises:
        UnreachableError: the resolver does not know it.
    """
    host, port = split_address(address)
    try:
        return _first_found(host, port)
    except OSError as error:
        raise UnreachableError(
            f"the host of {address} cannot be resolved ({error.strerror or error})",
            f"check the name, or say where it is with address_map={{'{address}': 'host:port'}}",
            address=address,
        ) from error


def _first_found(host: str, port: int, flags: int = 0) -> Where:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    # IPv4 first, as in Java: brokers may listen there only, and `localhost` has both.
    family, _kind, _protocol, _name, where = min(
        found, key=lambda one: one[0] is not socket.AF_INET
    )
    return family, (str(where[0]), int(where[1]))


def local_ip() -> str:
    """This host's address as peers see it; no packet is sent. Loopback when there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A documentation address: connecting a datagram socket only looks at the routes.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
