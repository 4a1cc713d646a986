"""`gimbalmq nameserver`: one name server of the embedded cluster, in this process."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gimbalmq.broker.plans import NAMESERVER, NameServerPlan, Plan
from gimbalmq.cli.output import json_option, notice, print_json
from gimbalmq.cli.serving import (
    kept_in,
    listening_options,
    run_server,
    security_options,
    tls_context,
)

__all__ = ["nameserver"]


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9876,
    show_default=True,
    help="Port to listen on; 0: any free one.",
)
@listening_options
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps its configuration. [default: a temporary one, removed at the end]",
)
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
    """Run a name server until Ctrl-C (or SIGTERM). For development and tests.

    With --json the first line is {"event":"ready","address":...,"pid":...}.
    """
    tls = tls_context(tls_cert, tls_key)

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
            ),
            what="the name server",
            interface=interface,
            port=port,
            tls=tls,
            on_ready=say,
        )
