"""Kill -9 at random points under load: nothing acknowledged is lost, and index equals log."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from broker.store.storing import opened
from gimbalmq.broker.store.layout import Blank, Frame, entry_at, records_of
from gimbalmq.wire.record import decode_records

WRITER = Path(__file__).with_name("crash_writer.py")
QUEUES = range(4)


def run_until_killed(directory, policy, seed):
    """Acknowledged (queue, offset) to number of one run that ends by SIGKILL."""
    count = random.Random(seed).randint(1, 250)
    command = [sys.executable, str(WRITER), str(directory), policy, str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            lines = [writer.stdout.readline() for _ in range(count)]
        finally:
            writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
    whole = [line.split() for line in lines if line.endswith("\n")]
    return {(int(queue), int(offset)): int(number) for queue, offset, number in whole}


def check(directory, acknowledged, options):
    store = opened(directory, **options)
    assert store.problem is None
    held = {}
    for queue_id in QUEUES:
        minimum, maximum = store.bounds("orders", queue_id)
        offset = minimum
        while offset < maximum:
            result = store.read("orders", queue_id, offset, max_messages=32, max_bytes=1 << 20)
            for one in decode_records(b"".join(result.records), "b"):
                number = int(one.body.partition(b":")[0])
                held[queue_id, one.queue_offset] = (number, one.physical_offset)
                assert one.body == b"%d:" % number + one.body[-1:] * (len(one.body) - len(b"%d:" % number))  # fmt: skip
            assert [o.queue_offset for o in decode_records(b"".join(result.records), "b")] == list(range(offset, result.next_offset))  # fmt: skip
            offset = result.next_offset
        # Nothing acknowledged may lie behind the end, or before the start without retention.
        mine = [offset for queue, offset in acknowledged if queue == queue_id]
        assert not mine or max(mine) < maximum
    kept = {
        key: number
        for key, number in acknowledged.items()
        if key[1] >= store.bounds("orders", key[0])[0]
    }
    assert {key: held[key][0] for key in kept} == kept
    assert sorted(place for _, place in held.values()) == places_in_log(store)
    for number, place in random.Random(0).sample(sorted(held.values()), min(40, len(held))):
        (found,) = store.find("orders", f"U{number}", 0, 1 << 60, 9)
        assert decode_records(found, "b")[0].physical_offset == place
    store.close()


def places_in_log(store):
    """Every record of the log, found by walking it."""
    places = []
    for segment in store._segments.held:
        view, at = store._segments.view(segment), 0
        while (entry := entry_at(view, at, segment.start)) is not None:
            if isinstance(entry, Frame):
                places += [facts.physical_offset for facts in records_of(view, entry)]
            assert isinstance(entry, Frame | Blank)
            at = entry.until
    return places


def campaign(directory, policy, rounds):
    acknowledged = {}
    for seed in range(1, rounds + 1):
        acknowledged |= run_until_killed(directory, policy, seed)
        # The writer's own next start recovers in some rounds, ours in the others.
        if seed % 2 or seed == rounds:
            check(directory, acknowledged, {"segment_bytes": 16_384})
    check(directory, acknowledged, {"segment_bytes": 16_384, "check_all": True})
    assert acknowledged


@pytest.mark.parametrize("policy", ["each", "interval"])
def test_a_killed_process_loses_nothing_acknowledged(tmp_path, policy):
    campaign(tmp_path, policy, rounds=5)


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["each", "interval", "none"])
def test_a_process_killed_a_hundred_times_loses_nothing_acknowledged(tmp_path, policy):
    campaign(tmp_path, policy, rounds=100)
