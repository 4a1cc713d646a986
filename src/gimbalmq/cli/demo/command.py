"""`gimbalmq demo`: options, exit code, and where the words go."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Final

import click

from gimbalmq.cli.demo.screen import Screen
from gimbalmq.cli.demo.spark_stream import spark_missing
from gimbalmq.cli.demo.stage import BROKERS, QUEUES_PER_BROKER, TOPIC, Plan, Stage
from gimbalmq.cli.demo.story import STEPS, Story
from gimbalmq.cli.demo.summary import Summary
from gimbalmq.cli.demo.tables import figures_table
from gimbalmq.cli.ending import raised_once
from gimbalmq.cli.output import json_option, print_json
from gimbalmq.errors import EngineError
from gimbalmq.testing.engines import DEFAULT_ENGINE, ENGINES
from gimbalmq.testing.jars import VERSIONS
from gimbalmq.testing.jvm import find_java

__all__ = ["demo"]

_FINDING = 1


_HELP: Final = """\
See a group of Python and Java members share queues, lose a member, and lose no message.

Spark streams the same topic into files meanwhile, and measures the load: how uneven it is, and
what a better allocation would give.

Takes about a minute on a small machine. The Java member joins where Java 17 or newer is found;
its RocketMQ client is downloaded once. Everything that is started runs on this machine and
ends with the demo.

With --json the summary is printed to stdout and everything else to stderr. Exit code 1 when
a check fails.

\b
Examples:
  gimbalmq demo
  gimbalmq demo --no-java --no-spark --json
  gimbalmq demo --engine apache --keep
"""


@click.command(help=_HELP)
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default=DEFAULT_ENGINE,
    show_default=True,
    help="What to run it on. embedded: in pure Python. apache: the real Apache RocketMQ, "
    "downloaded once; needs Java 17 or newer.",
)
@click.option("--version", help="Version of the engine. [default: the newest that is supported]")
@click.option("--keep", is_flag=True, help="Leave it running at the end, until Ctrl-C.")
@click.option("--no-java", is_flag=True, help="Leave out the Java member.")
@click.option("--no-spark", is_flag=True, help="Leave out Spark: the stream and the load profile.")
@json_option
def demo(
    engine: str,
    version: str | None,
    *,
    keep: bool,
    no_java: bool,
    no_spark: bool,
    as_json: bool,
) -> int:
    """See it all on this machine."""
    began_at = time.monotonic()
    chosen = ENGINES[engine]
    plan = Plan(
        engine_name=engine,
        engine=chosen,
        version=version or chosen.versions()[0],
        java_version=version if version in VERSIONS else VERSIONS[0],
        no_java="left out (--no-java)" if no_java else _java_missing(),
        no_spark="left out (--no-spark)" if no_spark else spark_missing() or _java_missing(),
    )
    screen = Screen(STEPS, aside=as_json)
    # SIGTERM, and a terminal that closes, end the demo as Ctrl-C does.
    ends = raised_once(KeyboardInterrupt, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with ends, contextlib.ExitStack() as things:
        screen.step(
            f"{_capital(chosen.title)} {plan.version} with {BROKERS} brokers; topic {TOPIC} with "
            f"{QUEUES_PER_BROKER} queues on each"
        )
        with screen.waiting("starting"):
            stage = things.enter_context(Stage.opened(plan))
        screen.say(f"ready after {time.monotonic() - began_at:.1f} s at {stage.cluster.nameserver}")
        story = Story(plan, screen, stage, began_at)
        summary = story.tell()
        _close(summary, screen, as_json=as_json)
        if keep:
            _keep(story, screen, summary)
    return 0 if summary.passed else _FINDING


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _java_missing() -> str | None:
    try:
        find_java()
    except EngineError as error:
        return str(error)
    return None


def _close(summary: Summary, screen: Screen, *, as_json: bool) -> None:
    screen.step(f"Summary after {summary.seconds:.0f} s")
    screen.show(figures_table(summary))
    for check in summary.failed():
        screen.say(f"FAILED: {check.name}: {check.sentence}", style="bold red")
    if as_json:
        print_json(summary)


def _keep(story: Story, screen: Screen, summary: Summary) -> None:
    # Who reads that Ctrl-C ends it may press it at once.
    with contextlib.suppress(KeyboardInterrupt):
        screen.say("")
        screen.say("It goes on until Ctrl-C. In another terminal:", style="bold")
        for line in (
            f"export NAMESRV_ADDR={summary.nameserver}",
            f"gimbalmq group show {summary.group} --live",
            f"gimbalmq group doctor {summary.group}",
            f"gimbalmq message tail {summary.topic}",
            f"gimbalmq pipeline run load-profile --option topic={summary.topic}",
        ):
            screen.say(line)
        story.keep()
