"""The lines of wire.jsonl about brokers that are kept away from: kinds "latency", "select_queue".

4.9.5 overwrites an entry of the shared queue list when every broker is aside. We do not: the test
does it in our place, so that all twelve choices of a line can be compared.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gimbalmq.core.fault import Faults, FaultTolerance, pause_s
from gimbalmq.core.selection import RoundRobin
from gimbalmq.model.queue import MessageQueue

OWN_VECTORS = Path(__file__).parents[1] / "vectors"
RULES = {"4.9.5": "4.x", "5.5.0": "5.x"}


def lines_of(kind, vectors_dir):
    with (vectors_dir / "wire.jsonl").open(encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            line = json.loads(text)
            if line["kind"] == kind:
                yield number, line


def tolerances(line):
    versions = [line["version"]] if "version" in line else RULES
    return [FaultTolerance(rules=RULES[version]) for version in versions]


def check_latency(line):
    given, out = line["in"], line["out"]
    for tolerance in tolerances(line):
        if "tables" in given:
            latencies, pauses = tolerance.table()
            assert [round(limit * 1000) for limit in latencies] == out["latencyMax"]
            assert [round(pause * 1000) for pause in pauses] == out["notAvailableDuration"]
        else:
            assert pause_s(tolerance, given["latency"] / 1000) * 1000 == out


def check_select_queue(line):
    given = line["in"]
    queues = [MessageQueue("t", broker, number) for broker, number in given["queues"]]
    ring = RoundRobin(given["start"])
    if not given["sendLatencyFaultEnable"]:
        chosen = [ring.next(queues, avoid_broker=last) for last in given["lastBrokerNames"]]
    else:
        (tolerance,) = tolerances(line)
        chosen = choose_with_faults(tolerance, ring, queues, given)
    assert [[queue.broker, queue.queue_id] for queue in chosen] == line["out"]


def choose_with_faults(tolerance, ring, queues, given):
    faults = Faults(tolerance, fallback_start=given.get("whichItemWorst", 0))
    for fault in given["faults"]:
        faults.report(
            fault["broker"],
            fault["latency"] / 1000,
            0.0,
            failed=fault["isolation"],
            reachable=fault.get("reachable", True),
        )
    write_queues = {broker: 0 for broker, _ in given["queues"]}
    for broker, _ in given["queues"]:
        write_queues[broker] += 1
    chosen = []
    for last in given["lastBrokerNames"]:
        before = ring._counter
        chosen.append(faults.select(ring, queues, write_queues, 0.001, failed_broker=last))
        if tolerance.rules == "4.x" and ring._counter - before == 3:
            # Walk, next entry, number of the queue: the fallback, which overwrites that entry.
            queues[((before + 2) & 0x7FFFFFFF) % len(queues)] = chosen[-1]
    return chosen


CHECKS = {"latency": check_latency, "select_queue": check_select_queue}

#: How many lines of each sort there are in the repository's own copy.
LINES = {
    "latency": {"4.9.5": 47, "5.5.0": 47, "both": 10},
    "select_queue": {"4.9.5, with faults": 40, "5.5.0, with faults": 40, "both": 40},
}


def sort_of(line):
    faults = line["kind"] == "select_queue" and line["in"]["sendLatencyFaultEnable"]
    return line.get("version", "both") + (", with faults" if faults else "")


@pytest.mark.rule("B7.1b", "B7.1c", "B7.2a", "B7.2b", "B7.3a")
@pytest.mark.parametrize("kind", CHECKS)
def test_every_line_of_a_kind_agrees_with_java(kind, vectors_dir):
    failures = []
    checked = Counter()
    for number, line in lines_of(kind, vectors_dir):
        checked[sort_of(line)] += 1
        try:
            CHECKS[kind](line)
        except AssertionError as error:
            failures.append(f"line {number}: {error}")
    assert not failures, f"{len(failures)} lines differ\n" + "\n".join(failures[:5])
    assert checked, f"there is no line of kind {kind}"
    if vectors_dir == OWN_VECTORS:
        assert checked == LINES[kind]
