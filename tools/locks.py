"""Write the lock files under requirements/, and tell whether they are up to date.

Decides from what each lock is resolved, and keeps a fingerprint of that in the lock's first
lines, so that the check needs neither a network nor a resolver. Must not know what is installed.

    python tools/locks.py --check
    python tools/locks.py --write [--upgrade]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LOCKS", "Lock", "fingerprint", "main", "recorded", "stale", "write"]

_FINGERPRINT: Final = "# inputs: sha256:"
_TITLE: Final = "# Written by `make lock`; do not edit."

_RESOLVE: Final = (
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-annotate",
    "--no-header",
)
_PROJECT: Final = (
    "--extra=cli",
    "--extra=compression",
    "--extra=pipelines",
    "--extra=java",
    "--extra=otel",
    "--extra=testing",
    "--group=dev",
    "pyproject.toml",
)


@dataclass(frozen=True)
class Lock:
    """One lock file: its inputs, and the lock whose versions it prefers, if any."""

    name: str
    arguments: tuple[str, ...]
    files: tuple[str, ...]
    like: str = ""


LOCKS: Final = (
    Lock("bootstrap.txt", ("requirements/bootstrap.in",), ("requirements/bootstrap.in",)),
    Lock("dev.txt", _PROJECT, ("pyproject.toml",)),
    Lock(
        "spark42.txt",
        ("--constraint=requirements/spark42.in", *_PROJECT),
        ("pyproject.toml", "requirements/spark42.in"),
        like="dev.txt",
    ),
    Lock("docs.txt", ("requirements/docs.in",), ("requirements/docs.in",)),
)


def fingerprint(lock: Lock, root: Path) -> str:
    """A hash of everything that the lock was resolved from.

    Of pyproject.toml only the dependencies count, so that a changed linter rule asks for nothing.
    """
    inputs: list[object] = [*_RESOLVE, *lock.arguments]
    for file in lock.files:
        text = (root / file).read_text("utf-8")
        if file == "pyproject.toml":
            document = tomllib.loads(text)
            project = document["project"]
            inputs.append(
                [
                    project["requires-python"],
                    project.get("dependencies", []),
                    project.get("optional-dependencies", {}),
                    document.get("dependency-groups", {}),
                ]
            )
        else:
            inputs.append([line for line in text.splitlines() if line and not line.startswith("#")])
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def recorded(path: Path) -> str:
    """The fingerprint in the head of a lock file, or "" when there is none."""
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(_FINGERPRINT):
                return line.removeprefix(_FINGERPRINT).strip()
            if not line.startswith("#"):
                break
    return ""


def stale(root: Path) -> list[str]:
    """The lock files whose inputs have changed since they were written."""
    return [
        lock.name
        for lock in LOCKS
        if recorded(root / "requirements" / lock.name) != fingerprint(lock, root)
    ]


def write(root: Path, uv: str, *, upgrade: bool = False) -> None:
    """Resolve every lock anew; without `upgrade`, locked versions stay where they still fit."""
    for lock in LOCKS:
        path = root / "requirements" / lock.name
        print(f"resolving {lock.name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / lock.name
            # uv prefers the versions that it finds in its output file.
            preferred = root / "requirements" / lock.like if lock.like else path
            if preferred.exists() and (lock.like or not upgrade):
                shutil.copy(preferred, output)
            command = [uv, "pip", "compile", "--quiet", *_RESOLVE, f"--output-file={output}"]
            subprocess.run([*command, *lock.arguments], cwd=root, check=True)
            resolved = output.read_text("utf-8")
        body = "".join(
            line for line in resolved.splitlines(keepends=True) if not line.startswith("#")
        )
        path.write_text(f"{_TITLE}\n{_FINGERPRINT}{fingerprint(lock, root)}\n{body}", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Lock files: write or check them.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit 1 when a lock is out of date")
    action.add_argument("--write", action="store_true", help="resolve and write all locks")
    parser.add_argument("--upgrade", action="store_true", help="with --write: newest versions")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args(arguments)
    if options.write:
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
        if uv is None:
            print("uv is not installed in this environment: run `make lock`", file=sys.stderr)
            return 2
        write(options.root, uv, upgrade=options.upgrade)
    old = stale(options.root)
    for name in old:
        print(f"requirements/{name} is older than its inputs: run `make lock`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    raise SystemExit(main())
