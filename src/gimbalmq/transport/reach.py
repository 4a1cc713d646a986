"""How a client reaches its cluster and says who it is: keys, TLS, and where addresses lead.

One value for every kind of connection. It holds settings, nothing that is open: unless the user
gave an `ssl.SSLContext` or a function that cannot be pickled, it can be sent to another process.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Mapping

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.transport.address import parse_address, split_address
from gimbalmq.wire.acl import Credentials, credentials_of, denial, sign
from gimbalmq.wire.command import Command

__all__ = ["PLAIN", "AddressMap", "Reach", "TlsFiles", "reach_of"]

#: From the address that a server is known by to the one to connect to.
AddressMap = Mapping[str, str] | Callable[[str], str]


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """TLS by files: whom to trust (the system's authorities unless given), and who we are.

    Servers must prove to be what their address says; `check_hostname=False` accepts any
    certificate of a trusted authority, as Java clients do.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    check_hostname: bool = True

    def __post_init__(self) -> None:
        if self.key_file is not None and self.cert_file is None:
            raise ConfigurationError(
                f"the key file {self.key_file} needs a certificate: give the certificate file, too"
            )

    def context(self) -> ssl.SSLContext:
        """A client's context; made once per process."""
        return _context(self)


@functools.lru_cache(maxsize=32)
def _context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca_file)
        if files.cert_file is not None:
            context.load_cert_chain(files.cert_file, files.key_file)
    except OSError as error:  # an SSLError is one
        named = (files.ca_file, files.cert_file, files.key_file)
        listed = ", ".join(name for name in named if name is not None)
        raise ConfigurationError(
            f"TLS cannot use {listed or 'the certificates of this system'} "
            f"({error.strerror or error}): give files in PEM form that this process may read"
        ) from error
    context.check_hostname = files.check_hostname
    return context


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Keys, TLS and address map of one client, and its patience; `PLAIN` has none of the first."""

    credentials: Credentials | None = None
    tls: TlsFiles | ssl.SSLContext | None = None
    address_map: tuple[tuple[str, str], ...] | Callable[[str], str] = ()
    #: How long a connection may take to be made.
    connect_timeout_s: float = 3.0

    def target(self, address: str) -> str:
        """Where to connect to for a server that is known by an address.

        Raises:
            ConfigurationError: the function that was given as address map raised, or gave no
                address.
        """
        if not callable(self.address_map):
            return dict(self.address_map).get(address, address)
        try:
            mapped = self.address_map(address)
        except Exception as error:
            raise ConfigurationError(
                f"address_map raised {type(error).__name__}: {error} for {address}: it must return "
                "'host:port' for every address, the same when nothing is to change"
            ) from error
        if not isinstance(mapped, str):
            raise ConfigurationError(
                f"address_map gave {mapped!r} for {address}: it must return 'host:port', the same "
                "when nothing is to change"
            )
        return parse_address(mapped)

    def context(self) -> ssl.SSLContext | None:
        """What TLS connections are made with; None means plain text."""
        return self.tls.context() if isinstance(self.tls, TlsFiles) else self.tls

    def signed(self, command: Command) -> Command:
        """The request as it has to go out; the one given is left as it is."""
        return command if self.credentials is None else sign(command, self.credentials)

    def explain(self, answer: Command) -> None:
        """Put a refusal of the keys into words for the user; other answers stay as they are."""
        remark = (answer.remark or "").strip()
        access_key = None if self.credentials is None else self.credentials.access_key
        words = denial(answer.code, remark, access_key)
        if words is not None:
            answer.remark = f"{words} (in the broker's words: {remark.splitlines()[0]})"

    def wording(self, address: str) -> str:
        """An address for messages: what it is known by, and what it was mapped to."""
        target = self.target(address)
        return address if target == address else f"{address} (by address_map: {target})"


PLAIN = Reach()


def reach_of(
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    tls: bool | ssl.SSLContext | TlsFiles = False,
    address_map: AddressMap | None = None,
    connect_timeout_s: float = 3.0,
) -> Reach:
    """Read the options that every client takes.

    Raises:
        ConfigurationError: one key without the other, or something that is no TLS setting,
            address or time.
    """
    if connect_timeout_s <= 0:
        raise ConfigurationError(f"connect_timeout_s is {connect_timeout_s}: give seconds above 0")
    security: TlsFiles | ssl.SSLContext | None
    if isinstance(tls, bool):
        security = TlsFiles() if tls else None
    elif isinstance(tls, ssl.SSLContext | TlsFiles):
        security = tls
    else:
        raise ConfigurationError(
            f"tls is {tls!r}: give True (trusts the authorities of this system), or an "
            "ssl.SSLContext"
        )
    return Reach(
        credentials=credentials_of(access_key, secret_key),
        tls=security,
        address_map=_checked_map(address_map),
        connect_timeout_s=connect_timeout_s,
    )


def _checked_map(
    address_map: AddressMap | None,
) -> tuple[tuple[str, str], ...] | Callable[[str], str]:
    if address_map is None:
        return ()
    if callable(address_map):
        return address_map
    if not isinstance(address_map, Mapping):
        raise ConfigurationError(
            f"address_map is {address_map!r}: give a dict from advertised to reachable addresses "
            "('host:port'), or a function from one to the other"
        )
    return tuple(
        sorted((parse_address(known), parse_address(to)) for known, to in address_map.items())
    )


def tls_host(address: str) -> str:
    """The name or address that a server's certificate must be for."""
    return split_address(address)[0]
