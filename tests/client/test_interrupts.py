"""Producers whose callers are interrupted (Ctrl-C), again and again, wherever they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTS = 600
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("kind", ["plain", "keyed", "batched", "waiting"])
def test_interrupts_leave_nothing_half_done(kind):
    """Every future that was handed out ends, everything leaves, and nothing leaves twice."""
    program = [sys.executable, str(TESTS / "client" / "interrupted.py"), kind, str(INTERRUPTS)]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    finished = subprocess.run(
        program,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    outcome = json.loads(finished.stdout)
    assert outcome.pop("sent") > 0
    assert outcome == {"lost": 0, "twice": 0, "in_flight": 0}
