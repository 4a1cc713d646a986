"""A simulated cluster: the real machines and flows in virtual time, from one seed.

from gimbalmq.testing.sim import simulate

outcome = simulate(seed=4711)
assert not outcome.violations, outcome.report()

What runs unchanged: the machines of consumers, brokers and name servers; the instance, the host and
its calls; the flows for routes, offsets, locks, pulls and sends; the agreement on what waits for
workers (`Claims`), and the queue of polls. What is replaced: sockets and threads, by connections
and processes that live in virtual time, and the disk, by memory.

What is simulated: push consumers, concurrent, ordered and with leases, also with keys in parallel;
lite pull by polling, classic pull by pulling in turn; groups with foreign members, which here are
ours with Java's timers and without a token; published weights; members that restart. Brokers crash,
pause, lose connections, and may carry requests out in another order than they came in.

What is not: broadcasting (its offsets are in a file), batches, transactions, the producer's choice
of a queue and its fault tolerance, slaves, retention, subscriptions that change or filter, seeks
and resets, listeners that outlast `consume_timeout_s`, the threads and event loops that run
listeners, and Java's own code. Those have tests of their own, most of them on real brokers.
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
