"""What the commands that run servers share: where they listen, who gets in, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from gimbalmq.broker.access import Account, load_accounts
from gimbalmq.broker.plans import Plan
from gimbalmq.broker.ports import listen
from gimbalmq.broker.process import serve
from gimbalmq.broker.tls import ServerTls

__all__ = [
    "accounts_in",
    "data_option",
    "kept_in",
    "listening_options",
    "port_option",
    "run_server",
    "security_options",
    "server_tls",
    "store_options",
]

F = TypeVar("F", bound=Callable[..., Any])

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_folder = click.Path(file_okay=False, path_type=Path)


def port_option(default: int) -> Callable[[F], F]:
    """Add `--port`."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=True,
        help="Port to listen on; 0: any free one.",
    )


def data_option(what: str) -> Callable[[F], F]:
    """Add `--data`, the folder that keeps something."""
    return click.option(
        "--data",
        type=_folder,
        help=f"Folder that keeps {what}. [default: a temporary one, removed at the end]",
    )


def listening_options(command: F) -> F:
    """Add `--interface` and `--advertise`."""
    command = click.option(
        "--advertise",
        metavar="ADDRESS",
        help="Address that clients use, when it is not the interface.",
    )(command)
    return click.option(
        "--interface",
        default="127.0.0.1",
        show_default=True,
        metavar="ADDRESS",
        help="Interface to listen on; 0.0.0.0: all of them.",
    )(command)


def security_options(command: F) -> F:
    """Add `--tls-cert` and `--tls-key`."""
    command = click.option("--tls-key", type=_file, help="Private key of the certificate (PEM).")(
        command
    )
    return click.option(
        "--tls-cert", type=_file, help="Take TLS beside plain text, with this certificate (PEM)."
    )(command)


def store_options(command: F) -> F:
    """Add what only brokers have: `--flush`, `--acl` and `--faithful`."""
    command = click.option(
        "--faithful", is_flag=True, help="Do nothing better than Apache RocketMQ does it."
    )(command)
    command = click.option(
        "--acl", type=_file, help="Let in only the accounts of this file (TOML)."
    )(command)
    return click.option(
        "--flush",
        type=click.Choice(["each", "interval", "none"]),
        help="When messages go to the disk. [default: interval; none without --data]",
    )(command)


def server_tls(cert: Path | None, key: Path | None) -> ServerTls | None:
    """The server's side of TLS, or None when it is not asked for."""
    if cert is None:
        if key is not None:
            raise click.UsageError("--tls-key needs --tls-cert, the certificate of that key.")
        return None
    tls = ServerTls(str(cert), None if key is None else str(key))
    tls.context()  # a file that cannot be used is an error before anything starts
    return tls


def accounts_in(acl: Path | None) -> tuple[Account, ...]:
    """The accounts of a file; none without one."""
    return () if acl is None else load_accounts(acl)


@contextlib.contextmanager
def kept_in(data: Path | None) -> Iterator[Path]:
    """The folder for data: the given one, else one that goes at the end."""
    if data is not None:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="gimbalmq-") as folder:
        yield Path(folder)


def run_server(
    make: Callable[[int], Plan],
    *,
    what: str,
    interface: str,
    port: int,
    on_ready: Callable[[Plan], None],
) -> None:
    """Serve what `make` plans for a port, until SIGINT or SIGTERM."""
    with listen(interface, port, what=what) as listener:
        plan = make(listener.getsockname()[1])
        plan.listener = listener
        asyncio.run(serve(plan, lambda: on_ready(plan)))
