"""The same seed is the same run, also in another process with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gimbalmq.testing.sim import Mode, Options, simulate

PROGRAM = """
import logging, sys
logging.disable(logging.CRITICAL)
from gimbalmq.testing.sim import simulate
print(*(simulate(seed).history.digest() for seed in (3, 4, 5)))
"""


@pytest.mark.parametrize("mode", Mode)
def test_the_same_seed_gives_the_same_history(mode):
    options = Options(mode=mode)
    first, again = simulate(7, options), simulate(7, options)
    assert first.history.story() == again.history.story()
    assert first.violations == again.violations


def test_another_seed_gives_another_history():
    assert simulate(1).history.digest() != simulate(2).history.digest()


def test_a_seed_replays_in_another_process_whatever_its_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
