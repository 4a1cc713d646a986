"""`gimbalmq group doctor` and `gimbalmq group guard`: find what is wrong with a group, and heal it.

Decides the form of the answers; they come from `Admin.diagnose` and `GroupGuard`.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Final

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.main import EXIT_FINDING
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json
from gimbalmq.client.admin import Admin, Finding
from gimbalmq.client.guard import Deed, GroupGuard, GuardSettings
from gimbalmq.errors import ConfigurationError

__all__ = ["doctor_command", "guard_command", "unknown_group"]

_DOCTOR_HELP: Final = """\
Look for faults of a group, and say what to do about each.

Every broker and every member is asked twice, so that a rebalance in progress is not taken for a
fault: queues without owner or with two, ids used twice, unequal subscriptions, mixed strategies
and releases, offsets that stand still or jump, locks left by the dead, slow brokers, and more.

In an ordered group, locks that no member holds are tried under the name gimbalmq-doctor and given
back at once; --no-probe leaves that out.

\b
Examples:
  gimbalmq group doctor billing
  gimbalmq group doctor billing --interval 30
  gimbalmq group doctor billing --json

\b
Exit code: 0 healthy, 1 something was found, 2 the cluster could not be asked.

\b
JSON:
  {"healthy":bool,"findings":[{"code","severity","queues","members","message","action"}]}
"""

_GUARD_HELP: Final = """\
Watch a group of unmodified Java members, and heal it when one has died.

When a member of an ordered group dies, its queues stand still for up to a minute, until its locks
expire. The guard releases them and wakes the others, once the member has been gone from every
broker's list for longer than a live one needs to come back: --grace for clients of 5.2 and later,
--old-grace for older ones. It does nothing while a broker cannot be asked.

Without --act it only says what it would do.

\b
Examples:
  gimbalmq group guard billing
  gimbalmq group guard billing --act
  gimbalmq group guard billing --act --strict --json

\b
JSON, one object per decision and line:
  {"at","group","kind","members","reason","done","failures"}
kind is watching, missing, returned, release, wake, refuse, or alive (a member whose locks were
released came back: the grace time was too short).
"""


def unknown_group(name: str, known: Iterable[str]) -> ConfigurationError:
    """The error for a group that is none of those that brokers have heard of."""
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean '{close[0]}'? " if close else ""
    return ConfigurationError(
        f"no broker knows group '{name}': {meant}check the name with `gimbalmq group list`"
    )


@click.command("doctor", help=_DOCTOR_HELP)
@click.argument("name", metavar="GROUP")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=6.0,
    show_default=True,
    help="Seconds between the two looks; members commit every 5 s.",
)
@click.option("--probe/--no-probe", default=True, help="Try locks that no member holds.")
@nameserver_option
@access_option
@json_option
def doctor_command(
    name: str, nameserver: str | None, *, interval_s: float, probe: bool, as_json: bool
) -> int:
    """Look for faults of a group."""
    with Admin(nameserver, **access_options()) as admin:
        if not admin.members(name) and name not in (known := admin.groups(internal=True)):
            raise unknown_group(name, known)
        diagnosis = admin.diagnose(name, interval_s=interval_s, probe_locks=probe)
    if as_json:
        print_json(diagnosis)
    elif diagnosis.healthy:
        click.echo(f"group '{name}' is healthy")
    else:
        for finding in diagnosis.findings:
            click.echo(_text(finding))
    return 0 if diagnosis.healthy else EXIT_FINDING


def _text(finding: Finding) -> str:
    lines = [f"{finding.severity.upper()} {finding.code}: {finding.message}"]
    if finding.queues:
        lines.append(f"  queues:  {_some(finding.queues)}")
    if finding.members:
        lines.append(f"  members: {_some(finding.members)}")
    return "\n".join([*lines, f"  do:      {finding.action}"])


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


@click.command("guard", help=_GUARD_HELP)
@click.argument("name", metavar="GROUP")
@click.option("--act", is_flag=True, help="Release locks and wake members, not only say so.")
@click.option(
    "--grace",
    "grace_s",
    type=float,
    default=5.0,
    show_default=True,
    help="Seconds that a client of 5.2 or later must be gone.",
)
@click.option(
    "--old-grace",
    "old_grace_s",
    type=float,
    default=35.0,
    show_default=True,
    help="Seconds that an older client must be gone.",
)
@click.option("--strict", is_flag=True, help="Wait --old-grace for every client.")
@click.option("--for", "duration_s", type=click.FloatRange(min=0.1), help="End after so long.")
@nameserver_option
@access_option
@json_option
def guard_command(
    name: str,
    nameserver: str | None,
    *,
    act: bool,
    grace_s: float,
    old_grace_s: float,
    strict: bool,
    duration_s: float | None,
    as_json: bool,
) -> None:
    """Watch a group, and heal it when a member has died."""
    settings = GuardSettings(grace_s=grace_s, old_grace_s=old_grace_s, strict=strict)

    def tell(deed: Deed) -> None:
        if as_json:
            print_json(deed)
        else:
            click.echo(_deed_text(deed))

    with Admin(nameserver, **access_options()) as admin:
        guard = GroupGuard(admin, name, act=act, settings=settings)
        if not admin.members(name) and name not in (known := admin.groups(internal=True)):
            # It may be there before the group is.
            notice(f"{unknown_group(name, known)}; waiting for its first member")

        def end(_number: int, _frame: FrameType | None) -> None:
            guard.stop()

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            guard.run(tell, duration_s=duration_s)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _deed_text(deed: Deed) -> str:
    who = f" {', '.join(deed.members)}" if deed.members else ""
    would = deed.kind in {"release", "wake"} and not deed.done
    failed = "".join(f"; {broker} failed: {why}" for broker, why in deed.failures.items())
    dry = " (dry run)" if would and not deed.failures else ""
    return f"{deed.at} {deed.kind}{dry}{who}: {deed.reason}{failed}"
