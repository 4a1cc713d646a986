"""Run every static check and report all that fail, not only the first.

Decides which checks make up `make check`. Each is a command of its own, so that it can be run
alone; their order is cheapest first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

__all__ = ["CHECKS", "main"]

_BIN: Final = Path(sys.executable).parent
_ROOT: Final = Path(__file__).parents[1]
_CODE: Final = ("src", "tests", "tools", "bench", "docs")

#: (what it proves, command); a first word without a slash is a program of the environment.
CHECKS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("locks fit pyproject.toml", ("python", "tools/locks.py", "--check")),
    ("links lead somewhere", ("python", "tools/links.py")),
    ("conformance is up to date", ("python", "tools/conformance.py", "--check")),
    ("figures are those of the results", ("python", "tools/figures.py", "--check")),
    ("format", ("ruff", "format", "--quiet", "--check", *_CODE)),
    ("lint", ("ruff", "check", "--quiet", *_CODE)),
    ("spelling", ("codespell", *_CODE, "README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ("layers", ("lint-imports", "--no-logo")),
    ("types", ("mypy",)),
)


def main() -> int:
    """Run all checks; returns 1 when one failed."""
    failed = []
    for name, (program, *arguments) in CHECKS:
        started = time.monotonic()
        result = subprocess.run(
            [str(_BIN / program), *arguments],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        passed = result.returncode == 0
        verdict = "ok" if passed else "FAILED"
        print(f"{verdict:<7}{name} ({time.monotonic() - started:.1f} s)", flush=True)
        if not passed:
            failed.append(name)
            print(result.stdout.rstrip(), flush=True)
            print(f"       again: {' '.join([program, *arguments])}", flush=True)
    if failed:
        print(f"{len(failed)} of {len(CHECKS)} checks failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
