"""The shell scripts: what they say when a machine lacks something, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    """A PATH with nothing but the shell, and programs made by the test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "bash", "dirname", "basename", "env"):
        (folder / name).symlink_to(shutil.which(name))

    def add(name, script):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    add.folder = folder
    return add


def run(path, *command, **variables):
    environment = {"PATH": str(path.folder), "HOME": os.devnull, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def create(path, **variables):
    target = str(path.folder.parent / "venv")
    lock = str(ROOT / "requirements" / "docs.txt")
    return run(path, "sh", str(ROOT / "tools" / "venv.sh"), target, lock, **variables)


def test_without_any_python_it_says_what_was_looked_for(path):
    result = create(path)
    assert result.returncode == 1
    assert "python3, python3.11 to python3.14, python: not found" in result.stderr
    assert "make PYTHON=" in result.stderr


def test_an_old_python_is_named_with_its_version(path):
    path("python3", 'if [ "$1" = -V ]; then echo Python 3.9.2; else exit 2; fi')
    result = create(path)
    assert result.returncode == 1
    assert "python3 is Python 3.9.2, too old" in result.stderr


def test_a_python_without_ensurepip_is_named_with_the_package_to_install(path):
    path("python3", 'case "$2" in *ensurepip*) exit 1 ;; *print*) echo python3.12-venv ;; esac')
    result = create(path)
    assert result.returncode == 1
    assert "apt install python3.12-venv" in result.stderr


def test_the_first_usable_python_is_taken(path):
    path("python3", "exit 2")
    path("python3.12", 'case "$2" in venv) echo "venv of 3.12 $*" >&2; exit 7 ;; esac')
    result = create(path)
    assert "venv of 3.12 -m venv --clear" in result.stderr
    assert result.returncode == 7


def test_a_failing_pip_ends_the_script_and_asks_about_the_network(path, tmp_path):
    path("python3", f'exec {sys.executable} "$@"')
    for name in ("grep", "basename", "true"):
        if not (path.folder / name).exists():
            (path.folder / name).symlink_to(shutil.which(name))
    result = create(path, PIP_NO_INDEX="1", PIP_NO_CACHE_DIR="1")
    assert result.returncode != 0
    assert "Is there a network" in result.stderr
    assert "ready" not in result.stderr


def test_ci_runs_all_three_and_tells_how_long_each_took(path):
    path("make", 'echo "make $1, CI=$CI"')
    result = run(path, "bash", str(ROOT / ".ci" / "run"))
    assert result.returncode == 0, result.stderr
    assert [f"make {name}, CI=true" in result.stdout for name in ("check", "test", "matrix")] == [
        True,
        True,
        True,
    ]
    assert result.stdout.count("passed") == 3
    assert "0 min 0" in result.stdout


def test_ci_stops_at_the_first_failure_and_keeps_its_code(path):
    path("make", 'echo "make $1"; [ "$1" != test ] || exit 4')
    result = run(path, "bash", str(ROOT / ".ci" / "run"))
    assert result.returncode == 4
    assert "FAILED (4)" in result.stdout
    assert "make matrix" not in result.stdout


def test_make_alone_lists_the_targets():
    result = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = {line.split()[1] for line in result.stdout.splitlines()}
    assert listed >= {"demo", "test", "matrix", "check", "bench", "soak", "docs", "lock", "clean"}
