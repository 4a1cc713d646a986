from __future__ import annotations

import pytest

from broker.desk import Desk


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
