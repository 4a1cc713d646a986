"""Run the tests marked `soak` and keep what they found in docs/results/soak.json.

Decides the form of the kept result: commit, machine, and per campaign its outcome, duration and
the figures that it recorded with pytest's `record_property`. Must not know any campaign.

    python tools/soak.py [pytest arguments]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from machine import commit, machine, now

__all__ = ["campaigns", "main", "run"]

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


def run(root: Path, target: Path, arguments: list[str]) -> int:
    """Run pytest in `root`, write `target`; returns pytest's exit code, 0 for no soak tests."""
    started = now()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "soak.xml"
        # Campaigns bound themselves; the time limit of ordinary tests would cut them off.
        command = [sys.executable, "-m", "pytest", "-m", "soak", "--timeout=0"]
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
    result = {
        "started": started,
        "ended": now(),
        "commit": commit(root),
        "machine": machine(),
        "campaigns": found,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(f"{target.relative_to(root)}: {len(found)} campaigns")
    return code


def main() -> int:
    """Run the command line; returns the exit code."""
    return run(_ROOT, _ROOT / "docs" / "results" / "soak.json", sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
