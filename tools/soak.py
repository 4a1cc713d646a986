"""Run the tests marked `soak` and keep what they found in docs/results/soak.json.

Decides the form of the kept result: commit, machine, and per campaign its outcome, duration and
the figures that it recorded with pytest's `record_property`. Must not know any campaign.

    python tools/soak.py [--only NAME] [pytest arguments]

A run that was told what to run replaces the results of those campaigns only; each campaign says
at which commit it ran, and when it ended.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from machine import commit, machine, now

__all__ = ["campaigns", "joined", "main", "run"]

_ROOT: Final = Path(__file__).parents[1]
_NOTHING_COLLECTED: Final = 5  # pytest's exit code


def campaigns(report: Path) -> list[dict[str, object]]:
    """What each test of a JUnit file did: name, outcome, seconds and recorded figures."""
    root = ET.parse(report).getroot()
    return [
        {
            "name": f"{case.get('classname', '')}.{case.get('name', '')}",
            "outcome": _outcome(case),
            "seconds": float(case.get("time", "0")),
            "figures": {
                item.get("name", ""): item.get("value", "") for item in case.iter("property")
            },
        }
        for case in root.iter("testcase")
    ]


def _outcome(case: ET.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        if case.find(kind) is not None:
            return kind
    return "passed"


def joined(
    before: Sequence[dict[str, object]], found: Sequence[dict[str, object]]
) -> list[dict[str, object]]:
    """The campaigns of earlier runs, with those of now in their places or behind them."""
    return list(
        ({one["name"]: one for one in before} | {one["name"]: one for one in found}).values()
    )


def _kept(target: Path) -> list[dict[str, object]]:
    if not target.exists():
        return []
    campaigns: list[dict[str, object]] = json.loads(target.read_text("utf-8"))["campaigns"]
    return campaigns


def run(root: Path, target: Path, arguments: list[str]) -> int:
    """Run pytest in `root`, write `target`; returns pytest's exit code, 0 for no soak tests."""
    started = now()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "soak.xml"
        # Campaigns bound themselves; the time limit of ordinary tests would cut them off.
        command = [sys.executable, "-m", "pytest", "-m", "soak", "--timeout=0"]
        # The newer form of the report has no place for recorded figures.
        command += ["-o", "junit_family=xunit1"]
        code = subprocess.run(
            [*command, f"--junitxml={report}", *arguments], cwd=root, check=False
        ).returncode
        if code == _NOTHING_COLLECTED:
            print("There are no soak tests yet; nothing was run and nothing was written.")
            return 0
        if not report.exists():
            print("pytest ended without a report; nothing was written.", file=sys.stderr)
            return code or 2
        found = campaigns(report)
    origin: dict[str, object] = {"ended": now(), "commit": commit(root)}
    found = [one | origin for one in found]
    result = {
        "started": started,
        **origin,
        "machine": machine(),
        # A run of all leaves nothing behind that is no campaign any more.
        "campaigns": joined(_kept(target), found) if arguments else found,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(f"{target.relative_to(root)}: {len(found)} campaigns")
    return code


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="only campaigns whose name contains this text")
    given, arguments = parser.parse_known_args()
    if given.only is not None:
        arguments = ["-k", given.only, *arguments]
    return run(_ROOT, _ROOT / "docs" / "results" / "soak.json", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
