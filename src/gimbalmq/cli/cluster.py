"""`gimbalmq cluster`: RocketMQ on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

import click
import msgspec

from gimbalmq.cli.output import json_option, notice, print_json, print_table

__all__ = ["cluster"]

_WATCH_INTERVAL_S = 0.5


class _Options(msgspec.Struct, frozen=True):
    """What the user asked for, whatever the engine."""

    version: str | None
    brokers: int
    data: Path | None
    nameserver_port: int


class _Broker(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...


class _Cluster(Protocol):
    """What an engine starts."""

    @property
    def nameserver(self) -> str: ...
    @property
    def brokers(self) -> Sequence[_Broker]: ...
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def check(self) -> None: ...


def _apache(options: _Options) -> _Cluster:
    from gimbalmq.testing.apache import ApacheRocketMQ
    from gimbalmq.testing.jars import VERSIONS

    return ApacheRocketMQ(
        options.version or VERSIONS[0],
        options.brokers,
        options.data,
        nameserver_port=options.nameserver_port,
    )


#: Engines by name; the first is the default.
_ENGINES: dict[str, Callable[[_Options], _Cluster]] = {
    "apache": _apache,
}


class _StopRequestedError(BaseException):
    """SIGINT or SIGTERM came; not an Exception, so that nothing on the way swallows it."""


@click.group()
def cluster() -> None:
    """Start RocketMQ on this machine."""


@cluster.command()
@click.option(
    "--engine",
    type=click.Choice(list(_ENGINES)),
    default=next(iter(_ENGINES)),
    show_default=True,
    help="What to run. apache: the real Apache RocketMQ, downloaded once; needs Java 17 or newer.",
)
@click.option(
    "--version", help="Version of Apache RocketMQ. [default: the newest that is supported]"
)
@click.option(
    "--brokers", type=click.IntRange(1, 26), default=1, show_default=True, help="How many brokers."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the messages. [default: a temporary one, removed at the end]",
)
@click.option(
    "--nameserver-port",
    type=click.IntRange(0, 65535),
    default=9876,
    show_default=True,
    help="Port of the name server; 0: any free one.",
)
@json_option
def up(
    engine: str,
    version: str | None,
    brokers: int,
    data: Path | None,
    nameserver_port: int,
    *,
    as_json: bool,
) -> None:
    """Start a cluster and keep it running until Ctrl-C (or SIGTERM).

    With --json the first line is {"event":"ready",...}; the cluster takes requests from then on.
    """
    options = _Options(version, brokers, data, nameserver_port)
    with _stopped_by_signals():
        # Made inside: a signal that comes while it starts must stop what was started.
        running = _ENGINES[engine](options)
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


def _announce(running: _Cluster, *, as_json: bool) -> None:
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


def _stop(running: _Cluster, *, as_json: bool) -> None:
    if not as_json:
        notice("stopping ...")
    running.stop()


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Leave the block without an error when SIGINT or SIGTERM comes."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(_number: int, _frame: FrameType | None) -> None:
        # One is enough: a second Ctrl-C must not leave half of the processes running.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise _StopRequestedError

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except _StopRequestedError:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
