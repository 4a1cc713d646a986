from __future__ import annotations

import pytest

from broker.desk import Desk
from gimbalmq.broker.store import RetentionPolicy, StoreOptions


@pytest.fixture
def make_desk(tmp_path):
    desks = []

    def make(name="data", **settings):
        desk = Desk(tmp_path / name, **settings)
        desks.append(desk)
        return desk

    yield make
    for desk in desks:
        desk.close()


@pytest.fixture
def desk(make_desk):
    desk = make_desk()
    desk.topic("orders", 4)
    desk.announced = 0
    return desk


@pytest.fixture
def aged_desk(make_desk):
    """A desk whose queue 0 has lost its first messages."""
    keep = StoreOptions(segment_bytes=4096, retention=RetentionPolicy(keep_ms=1_000))
    desk = make_desk(store=keep)
    desk.topic("orders", 4)
    for _ in range(12):
        desk.send(body=b"x" * 900)
    desk.now_ms += 20_000
    desk.send(body=b"x" * 900)
    for _ in range(20):  # a little at a time
        desk.now_ms += 10_000
        desk.store.tick(desk.now_ms)
    minimum, maximum = desk.store.bounds("orders", 0)
    assert 0 < minimum < maximum
    return desk
