"""The command tree. Branches are imported when they are used, so that `--help` stays quick."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import click

__all__ = ["OutputClosedError", "root"]


class OutputClosedError(Exception):
    """The reader of our output (`head`, a pager) has seen enough."""


@contextlib.contextmanager
def _noticing_closed_output() -> Iterator[None]:
    """Put it into an error of its own: click and rich would end with 1, which means a finding."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except SystemExit as error:  # how rich tells it
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        raise OutputClosedError from error


class _Branch(NamedTuple):
    module: str
    attribute: str
    summary: str


#: Every command, in the order in which `--help` shows them.
_BRANCHES = {
    "demo": _Branch(
        "gimbalmq.cli.demo.command", "demo", "See it all on this machine, in a minute."
    ),
    "cluster": _Branch("gimbalmq.cli.cluster", "cluster", "Start RocketMQ on this machine."),
    "pipeline": _Branch(
        "gimbalmq.cli.pipeline", "pipeline", "Data pipelines on Spark: archive, profile, replay."
    ),
    "nameserver": _Branch(
        "gimbalmq.cli.nameserver", "nameserver", "Run one name server of the embedded cluster."
    ),
    "broker": _Branch("gimbalmq.cli.broker", "broker", "Run one broker of the embedded cluster."),
    "topic": _Branch("gimbalmq.cli.topic", "topic", "List, make, look at and remove topics."),
    "group": _Branch(
        "gimbalmq.cli.group", "group", "Who is in a group, who owns which queue and why, and lag."
    ),
    "worker": _Branch(
        "gimbalmq.cli.worker.command", "worker", "Run a consumer in several processes."
    ),
    "message": _Branch("gimbalmq.cli.message", "message", "Send, watch and look up messages."),
    "balance": _Branch(
        "gimbalmq.cli.balance", "balance", "Share out queues on paper: what would happen if."
    ),
}


class _LazyGroup(click.Group):
    """A group that knows the names and summaries of its commands without importing them."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _noticing_closed_output():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _noticing_closed_output():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_BRANCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        branch = _BRANCHES.get(cmd_name)
        if branch is None:
            return None
        command: click.Command = getattr(import_module(branch.module), branch.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _BRANCHES and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, _BRANCHES, n=1)
            ctx.fail(
                f"No such command '{name}'." + "".join(f" Did you mean '{one}'?" for one in close)
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, branch.summary) for name, branch in _BRANCHES.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gimbalmq", message="gimbalmq %(version)s")
def root() -> None:
    """Load balancing for Apache RocketMQ: clusters, groups, queues and who owns them.

    Exit codes: 0 fine, 1 a finding, 2 wrong use or failure.
    """
