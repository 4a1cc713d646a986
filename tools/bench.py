"""Run the benchmarks under bench/ one after the other and show their tables.

Decides the form in which results are shown and kept. A benchmark is a file with a main part that
answers `--json` with {"machine": ..., "rows": [{case, ours, anchor, anchor_name, ratio, unit}]}.
Never two at once: they would measure each other.

    python tools/bench.py [--save] [NAME ...] [-- arguments for each benchmark]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from machine import commit, now

__all__ = ["benchmarks", "main", "table"]

_ROOT: Final = Path(__file__).parents[1]
_COLUMNS: Final = ("case", "ours", "anchor", "ratio", "unit", "against")


def benchmarks(folder: Path) -> list[Path]:
    """The files with a main part, sorted by name."""
    return [
        path
        for path in sorted(folder.glob("*.py"))
        if not path.name.startswith("_") and "__main__" in path.read_text("utf-8")
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text.

    >>> row = {"case": "view/1KiB", "ours": 1234567.0, "anchor": 2e6, "anchor_name": "struct",
    ...        "ratio": 0.617, "unit": "records/s"}
    >>> print(table([row]))
    case            ours     anchor  ratio  unit       against
    view/1KiB  1,234,567  2,000,000   0.62  records/s  struct
    """
    cells = [
        (
            str(row["case"]),
            _number(row["ours"]),
            _number(row["anchor"]),
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            str(row["unit"]),
            str(row["anchor_name"]),
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in [_COLUMNS, *cells]) for i in range(len(_COLUMNS))]
    lines = []
    for line in [_COLUMNS, *cells]:
        aligned = [
            text.rjust(width) if 1 <= i <= 3 else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _run(path: Path, arguments: list[str], *, save: bool) -> bool:
    started = time.monotonic()
    print(f"== {path.stem}", flush=True)
    result = subprocess.run(
        [sys.executable, str(path), "--json", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        print(f"{path.name} failed with exit code {result.returncode}", file=sys.stderr)
        return False
    try:
        document = json.loads(result.stdout)
        print(table(document["rows"]))
    except (ValueError, KeyError, TypeError) as error:
        print(f"{path.name} --json: not the agreed form: {error!r}", file=sys.stderr)
        return False
    print(f"{time.monotonic() - started:.0f} s\n", flush=True)
    if save:
        target = _ROOT / "docs" / "results" / f"bench-{path.stem}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = {"ended": now(), "commit": commit(_ROOT), **document}
        target.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    own, passed = given, []
    if "--" in given:
        own, passed = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", help="which ones; all when none is named")
    parser.add_argument("--save", action="store_true", help="keep them under docs/results")
    options = parser.parse_args(own)
    found = benchmarks(_ROOT / "bench")
    unknown = sorted(set(options.names) - {path.stem for path in found})
    if unknown:
        known = ", ".join(path.stem for path in found) or "none"
        print(f"no such benchmark: {', '.join(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    chosen = [path for path in found if not options.names or path.stem in options.names]
    results = [_run(path, passed, save=options.save) for path in chosen]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
