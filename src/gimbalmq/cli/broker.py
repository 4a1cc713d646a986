"""`gimbalmq broker`: one broker of the embedded cluster, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from gimbalmq.broker.plans import BrokerPlan, Plan
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store import FlushPolicy, StoreOptions
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json
from gimbalmq.cli.serving import (
    accounts_in,
    data_option,
    kept_in,
    listening_options,
    port_option,
    run_server,
    security_options,
    server_tls,
    store_options,
)
from gimbalmq.transport.address import parse_nameservers

__all__ = ["broker"]


_HELP: Final = """\
Run a broker until Ctrl-C (or SIGTERM). For development and tests: it has no replica.

It registers with every name server, also with one that starts later. With --json the first
line is {"event":"ready","name":...,"address":...,"nameserver":...,"pid":...}.

\b
Examples:
  gimbalmq broker --nameserver 127.0.0.1:9876
  gimbalmq broker --nameserver 127.0.0.1:9876 --name broker-b --data data-b
"""


@click.command(help=_HELP)
@nameserver_option
@click.option("--name", default="broker-a", show_default=True, help="Name of the broker.")
@click.option("--cluster", default="DefaultCluster", show_default=True, help="Name of its cluster.")
@port_option(10911)
@listening_options
@data_option("the messages")
@store_options
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Answer Prometheus at http://127.0.0.1:PORT/metrics.",
)
@security_options
@json_option
def broker(
    nameserver: str | None,
    name: str,
    cluster: str,
    port: int,
    interface: str,
    advertise: str | None,
    data: Path | None,
    flush: str | None,
    acl: Path | None,
    metrics_port: int | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    *,
    faithful: bool,
    as_json: bool,
) -> None:
    """Run a broker."""
    if not nameserver:
        raise click.UsageError("give the name servers with --nameserver, or set NAMESRV_ADDR.")
    nameservers = parse_nameservers(nameserver)
    tls, accounts = server_tls(tls_cert, tls_key), accounts_in(acl)
    policy = FlushPolicy(flush or ("none" if data is None else "interval"))

    def say(plan: Plan) -> None:
        if as_json:
            facts = {"name": name, "address": plan.address, "nameserver": nameserver}
            print_json({"event": "ready", **facts, "pid": os.getpid()})
        else:
            notice(f"{name} serves at {plan.address}; stop it with Ctrl-C")
            notice(f"it registers with {nameserver}, and goes on trying where it cannot")

    with kept_in(data) as folder:
        run_server(
            lambda taken: BrokerPlan(
                name=name,
                host=interface,
                port=taken,
                folder=str(folder),
                advertised=advertise or "",
                tls=tls,
                nameservers=tuple(nameservers),
                settings=BrokerSettings(name=name, cluster=cluster, faithful=faithful),
                store=StoreOptions(flush=policy),
                accounts=accounts,
                metrics_port=metrics_port,
            ),
            what=f"broker '{name}'",
            interface=interface,
            port=port,
            on_ready=say,
        )
