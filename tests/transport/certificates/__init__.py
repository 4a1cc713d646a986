"""Certificates for tests; `make.sh` says how they were made."""

import ssl
from pathlib import Path

from gimbalmq.broker import ServerTls

FOLDER = Path(__file__).parent
AUTHORITY = FOLDER / "authority.pem"


def server_context(name="server", *, wants_client=False):
    """A server's side; `elsewhere` has a certificate for another host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / f"{name}.pem", FOLDER / f"{name}.key")
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(AUTHORITY)
    return context


def server_files(*, wants_client=False):
    """The same, for servers that are told of files."""
    authority = str(AUTHORITY) if wants_client else None
    return ServerTls(str(FOLDER / "server.pem"), str(FOLDER / "server.key"), authority)


def client_context(*, shows_client=False):
    """A client's side that trusts the test authority."""
    context = ssl.create_default_context(cafile=AUTHORITY)
    if shows_client:
        context.load_cert_chain(FOLDER / "client.pem", FOLDER / "client.key")
    return context


def trusting_context():
    """Trusts everybody, which RocketMQ's built-in certificate needs."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
