"""`gimbalmq worker`: one member of a group per process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Final

import click

from gimbalmq.cli.output import json_option, nameserver_option, print_json
from gimbalmq.cli.worker import events as ev
from gimbalmq.cli.worker.events import Notice
from gimbalmq.cli.worker.health import pages
from gimbalmq.cli.worker.loading import check_target
from gimbalmq.cli.worker.machine import SupervisorSettings
from gimbalmq.cli.worker.reports import Setup
from gimbalmq.cli.worker.supervisor import Supervisor
from gimbalmq.core.identity import check_stem
from gimbalmq.telemetry.endpoint import Endpoint

__all__ = ["worker"]


_HELP: Final = """\
Run a consumer in several processes, each a member of its group.

MODULE:CONSUMER is a PushConsumer of gimbalmq or gimbalmq.aio in a module, or a function that
returns one.

A process that dies is replaced. SIGTERM and Ctrl-C let all finish, commit and leave; a second
one does not wait for listeners. SIGHUP replaces one process after the other, with the code
that is there then.

\b
Examples:
  gimbalmq worker shop.billing:consumer
  gimbalmq worker shop.billing:consumer --processes 4 --client-id till --health-port 8080
"""


@click.command(help=_HELP)
@click.argument("target", metavar="MODULE:CONSUMER")
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    default=os.cpu_count() or 1,
    show_default="one for each core",
    help="How many processes, each a member of the group.",
)
@nameserver_option
@click.option(
    "--client-id",
    metavar="STEM",
    help="Call the members STEM-1, STEM-2 and so on, also after a restart. "
    "[default: what the consumer says, else a unique name]",
)
@click.option(
    "--drain-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="How long running listeners may go on when a process is to end.",
)
@click.option(
    "--start-timeout-s",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="A process that does not consume after this time is replaced.",
)
@click.option(
    "--give-up-after",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Give a process up that died so many times in a row ...",
)
@click.option(
    "--quick-death-s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="... each time within so many seconds of its start.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Answer /live, /ready, /metrics and / over HTTP; 0 takes a free port.",
)
@click.option(
    "--health-host",
    default="127.0.0.1",
    show_default=True,
    help="The address for --health-port; 0.0.0.0: every one of this machine.",
)
@json_option
def worker(
    target: str,
    processes: int,
    nameserver: str | None,
    client_id: str | None,
    drain_s: float,
    start_timeout_s: float,
    give_up_after: int,
    quick_death_s: float,
    health_port: int | None,
    health_host: str,
    *,
    as_json: bool,
) -> None:
    """Run a consumer in several processes."""
    check_target(target)
    if client_id is not None:
        check_stem(client_id)  # else the module that makes the consumer would be blamed
    voice = _Voice(as_json=as_json)
    supervisor = Supervisor(
        Setup(target=target, number=0, stem=client_id, drain_s=drain_s, report_fd=-1),
        SupervisorSettings(
            processes=processes,
            drain_s=drain_s,
            start_timeout_s=start_timeout_s,
            give_up_after=give_up_after,
            quick_death_s=quick_death_s,
        ),
        nameserver=nameserver,
        tell=voice.tell,
        output=voice.output,
    )
    with contextlib.ExitStack() as stack:
        if health_port is not None:
            endpoint = Endpoint(pages(supervisor.now), health_port, host=health_host)
            stack.enter_context(endpoint)
            voice.serves(endpoint.address)
        code = supervisor.run()
    click.get_current_context().exit(code)


class _Voice:
    """Says what happens: lines for people, or one JSON document per event."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()

    def serves(self, address: str) -> None:
        if self._as_json:
            with self._lock:
                print_json({"event": "health", "address": address})
        else:
            self._line(sys.stderr, f"health at http://{address}/")

    def tell(self, tell: ev.Tell, pid: int | None) -> None:
        if self._as_json:
            about = {"child": tell.number, "pid": pid} if tell.number else {}
            with self._lock:
                print_json({"event": tell.notice.value, **about, "text": tell.text})
            return
        who = f"[{tell.number}] " if tell.number else ""
        process = f" (process {pid})" if pid is not None and tell.notice is Notice.STARTING else ""
        self._line(sys.stderr, f"{who}{tell.text}{process}")

    def output(self, number: int, stream: str, line: str) -> None:
        # With --json standard output is for events only.
        to_stdout = stream == "stdout" and not self._as_json
        self._line(sys.stdout if to_stdout else sys.stderr, f"[{number}] {line}")

    def _line(self, stream: object, text: str) -> None:
        with self._lock:
            click.echo(text, file=stream)  # type: ignore[arg-type]
