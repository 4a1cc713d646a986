"""A simulated cluster: the real machines and flows in virtual time, from one seed.

from gimbalmq.testing.sim import simulate

outcome = simulate(seed=4711)
assert not outcome.violations, outcome.report()
"""

from __future__ import annotations

from gimbalmq.testing.sim.history import Happened, History, Kind
from gimbalmq.testing.sim.options import FAULTS, RESTARTS, Mode, Options
from gimbalmq.testing.sim.scenario import Outcome, simulate

__all__ = [
    "FAULTS",
    "RESTARTS",
    "Happened",
    "History",
    "Kind",
    "Mode",
    "Options",
    "Outcome",
    "simulate",
]
