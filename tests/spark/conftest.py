"""The Spark session of the run: starting one takes longer than all tests that use it."""

from __future__ import annotations

import pytest

#: C1 only and a simple collector: a third off the start, and nothing here runs long enough to miss
#: the rest.
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def pytest_collection_modifyitems(items):
    for item in items:
        if {"spark", "standalone"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark():
    """A quiet local session with two cores."""
    from gimbalmq.spark import local_session

    session = local_session("tests", cores=2, jvm_flags=_QUICK_START)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory):
    """Spark's own cluster, a master and two workers; for tests with the marker `product`."""
    from spark.standalone import StandaloneCluster

    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture
def scripted():
    """A broker of the test's own making; see `scripted_broker`."""
    from spark.scripted_broker import ScriptedBroker

    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def read_options(scripted):
    """Makes the options of a read from the scripted broker."""
    from gimbalmq.spark.options import parse_read_options

    def make(**given):
        return parse_read_options({"nameserver": scripted.address, "topic": "orders"} | given)

    return make
