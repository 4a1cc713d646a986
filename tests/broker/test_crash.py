"""The whole broker, killed with SIGKILL under load, again and again: what it promised holds."""

from __future__ import annotations

import random

import pytest

from broker.crash_load import Load, Recovered
from gimbalmq.broker import BrokerSettings, EmbeddedCluster
from gimbalmq.broker.store import FlushPolicy, StoreOptions

#: Offsets are saved often, so that kills meet the saving.
SETTINGS = BrokerSettings(offsets_save_ms=20)


def campaign(folder, flush, rounds):
    """Kill and restart; a process that dies loses nothing that the kernel has, whatever the policy."""
    store = StoreOptions(flush=flush, flush_interval_ms=20, segment_bytes=1 << 16)
    acknowledged = {}
    chance = random.Random(rounds)
    with EmbeddedCluster(data=folder, settings=SETTINGS, store=store, processes=True) as cluster:
        cluster.create_topic("orders", queues=4)
        address = cluster.brokers[0].address
        for seed in range(rounds):
            load = Load(address, "orders", "broker-a", seed)
            load.start()
            load.wait_sent(chance.randrange(1, 200))
            cluster.kill("broker-a")
            load.join()
            acknowledged |= load.acknowledged
            cluster.restart("broker-a")
            check(Recovered(address, "orders", "broker-a"), address, acknowledged)
    return len(acknowledged)


def check(shown, address, acknowledged):
    # Nothing acknowledged is lost or changed.
    assert {place: shown.bodies.get(place) for place in acknowledged} == acknowledged
    # The index is the log: every offset up to the end is there, at a place of its own.
    assert len(shown.bodies) == sum(shown.maximum.values())
    assert len(set(shown.places.values())) == len(shown.places)
    # Offsets are never ahead of the data.
    for queue_id, offset in shown.committed.items():
        assert offset <= shown.maximum[queue_id]
    sample = random.Random(0).sample(sorted(acknowledged), min(10, len(acknowledged)))
    keys = {acknowledged[place].rstrip(b".").decode(): place for place in sample}
    found = shown.found_by_key(address, keys)
    assert found == {key: [shown.places[place]] for key, place in keys.items()}


@pytest.mark.parametrize("flush", list(FlushPolicy))
def test_ten_kills_lose_nothing_acknowledged(tmp_path, flush):
    assert campaign(tmp_path, flush, 10) > 10


@pytest.mark.soak
@pytest.mark.parametrize("flush", list(FlushPolicy))
def test_a_hundred_kills_lose_nothing_acknowledged(tmp_path, flush, record_property):
    record_property("acknowledged", campaign(tmp_path, flush, 100))
    record_property("kills", 100)
