"""`gimbalmq nameserver`: one name server of the embedded cluster, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from gimbalmq.broker.plans import NAMESERVER, NameServerPlan, Plan
from gimbalmq.cli.output import json_option, notice, print_json
from gimbalmq.cli.serving import (
    data_option,
    kept_in,
    listening_options,
    port_option,
    run_server,
    security_options,
    server_tls,
)

__all__ = ["nameserver"]


_HELP: Final = """\
Run a name server until Ctrl-C (or SIGTERM). For development and tests.

With --json the first line is {"event":"ready","address":...,"pid":...}.

\b
Examples:
  gimbalmq nameserver
  gimbalmq nameserver --port 9877 --json
"""


@click.command(help=_HELP)
@port_option(9876)
@listening_options
@data_option("its configuration")
@security_options
@json_option
def nameserver(
    port: int,
    interface: str,
    advertise: str | None,
    data: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run a name server."""
    tls = server_tls(tls_cert, tls_key)

    def say(plan: Plan) -> None:
        if as_json:
            print_json({"event": "ready", "address": plan.address, "pid": os.getpid()})
        else:
            notice(f"name server at {plan.address}; connect with")
            click.echo(f"export NAMESRV_ADDR={plan.address}")

    with kept_in(data) as folder:
        run_server(
            lambda taken: NameServerPlan(
                name=NAMESERVER,
                host=interface,
                port=taken,
                folder=str(folder),
                advertised=advertise or "",
                tls=tls,
            ),
            what="the name server",
            interface=interface,
            port=port,
            on_ready=say,
        )
