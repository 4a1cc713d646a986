"""`gimbalmq cluster`: RocketMQ on this machine, until Ctrl-C.

Knows no engine: `testing.engines` lists them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

import click

from gimbalmq.broker.store import FlushPolicy
from gimbalmq.cli.ending import stopped_by_signals
from gimbalmq.cli.output import json_option, notice, print_json, print_table
from gimbalmq.cli.serving import (
    accounts_in,
    data_option,
    listening_options,
    security_options,
    server_tls,
    store_options,
)
from gimbalmq.testing.engines import (
    DEFAULT_ENGINE,
    ENGINES,
    Cluster,
    ClusterOptions,
    EmbeddedOptions,
)

__all__ = ["cluster"]

_WATCH_INTERVAL_S = 0.5


@click.group()
def cluster() -> None:
    """Start RocketMQ on this machine."""


_UP_HELP: Final = """\
Start a cluster and keep it running until Ctrl-C (or SIGTERM).

With --json the first line is {"event":"ready",...}; the cluster takes requests from then on.
Interface, flush policy, accounts, TLS and --faithful are for the embedded cluster.

\b
Examples:
  gimbalmq cluster up
  gimbalmq cluster up --brokers 2 --data data
  gimbalmq cluster up --engine apache --json
"""


@cluster.command(help=_UP_HELP)
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default=DEFAULT_ENGINE,
    show_default=True,
    help="What to run. embedded: in pure Python, for development and tests, starts at once. "
    "apache: the real Apache RocketMQ, downloaded once; needs Java 17 or newer.",
)
@click.option("--version", help="Version of the engine. [default: the newest that is supported]")
@click.option(
    "--brokers", type=click.IntRange(1, 26), default=1, show_default=True, help="How many brokers."
)
@data_option("the messages")
@click.option(
    "--nameserver-port",
    type=click.IntRange(0, 65535),
    default=9876,
    show_default=True,
    help="Port of the name server; 0: any free one.",
)
@listening_options
@store_options
@security_options
@json_option
def up(
    engine: str,
    version: str | None,
    brokers: int,
    data: Path | None,
    nameserver_port: int,
    interface: str,
    advertise: str | None,
    flush: str | None,
    acl: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    *,
    faithful: bool,
    as_json: bool,
) -> None:
    """Start a cluster and keep it running."""
    options = ClusterOptions(
        version=version,
        brokers=brokers,
        data=data,
        nameserver_port=nameserver_port,
        embedded=EmbeddedOptions(
            host=interface,
            advertise=advertise,
            flush=None if flush is None else FlushPolicy(flush),
            faithful=faithful,
            accounts=accounts_in(acl),
            tls=server_tls(tls_cert, tls_key),
        ),
    )
    with stopped_by_signals():
        # Made inside: a signal that comes while it starts must stop what was started.
        running = ENGINES[engine].make(options)
        try:
            if not as_json:
                notice("starting RocketMQ, one moment ...")
            running.start()
            _announce(running, as_json=as_json)
            while True:
                running.check()
                time.sleep(_WATCH_INTERVAL_S)
        finally:
            _stop(running, as_json=as_json)


def _announce(running: Cluster, *, as_json: bool) -> None:
    brokers = [{"name": broker.name, "address": broker.address} for broker in running.brokers]
    if as_json:
        print_json(
            {
                "event": "ready",
                "nameserver": running.nameserver,
                "brokers": brokers,
                "pid": os.getpid(),
            }
        )
        return
    rows = [("name server", running.nameserver)]
    print_table(("server", "address"), [*rows, *((one["name"], one["address"]) for one in brokers)])
    click.echo(f"Connect with   export NAMESRV_ADDR={running.nameserver}")
    click.echo("Stop with      Ctrl-C")
    sys.stdout.flush()


def _stop(running: Cluster, *, as_json: bool) -> None:
    if not as_json:
        notice("stopping ...")
    running.stop()
