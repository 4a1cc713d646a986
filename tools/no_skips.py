"""Fail when a test run left something out.

Reads the JUnit files of finished runs. On CI everything that tests need is there, so a skipped
or expected-to-fail test, or a run with no tests at all, means that something is not proven.

    python tools/no_skips.py build/reports/test [more folders or files]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

__all__ = ["left_out", "main", "reports"]


def reports(paths: Iterable[Path]) -> list[Path]:
    """The JUnit files among the paths, folders searched one level deep, in a stable order."""
    found = []
    for path in paths:
        found += sorted(path.glob("*.xml")) if path.is_dir() else [path]
    return found


def left_out(report: Path) -> list[str]:
    """One line per test that the run did not prove; empty when all of them ran."""
    root = ET.parse(report).getroot()
    cases = list(root.iter("testcase"))
    if not cases:
        return [f"{report.name}: no test was run"]
    return [
        f"{report.name}: {case.get('classname', '')}.{case.get('name', '')}: {_reason(skipped)}"
        for case in cases
        for skipped in case.iter("skipped")
    ]


def _reason(skipped: ET.Element) -> str:
    message = skipped.get("message") or skipped.get("type") or "skipped"
    # A module skipped as a whole has its reason in the text only.
    return f"{message}: {skipped.text}" if message == "collection skipped" else message


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Fail when a test run skipped a test.")
    parser.add_argument("paths", nargs="+", type=Path, help="JUnit files, or folders of them")
    files = reports(parser.parse_args(arguments).paths)
    if not files:
        print("no JUnit file found: did the tests run?", file=sys.stderr)
        return 2
    missing = [line for file in files for line in left_out(file)]
    for line in missing:
        print(line, file=sys.stderr)
    if missing:
        print(f"{len(missing)} left out; on CI nothing may be skipped", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
