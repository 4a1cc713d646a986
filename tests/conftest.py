"""Fixtures that every folder may use: real RocketMQ clusters and Java peers, started once a run.

`apache` is shared by all tests of a run, which leave its servers alone. Tests that kill, pause or
restart servers use `breakable_apache` and put it right before they end; its clients are their own,
because a client's first call after such an event may fail. Tests that use either carry the marker `apache` by themselves, and stay on one worker under
`-n ... --dist loadgroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from gimbalmq.testing import ApacheRocketMQ, JavaAdmin, JavaPeer
from gimbalmq.testing.jars import VERSIONS

# How long an example takes says more about the machine than about the code.
settings.register_profile("no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rocketmq-version",
        choices=VERSIONS,
        default=VERSIONS[0],
        help="version of Apache RocketMQ that the tests run against (default: %(default)s)",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:  # before -m looks at the markers
        if "rocketmq_version" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.apache)
            item.add_marker(pytest.mark.xdist_group("apache"))
    yield
    # After its first transaction a 5.5.0 broker keeps a thread spinning (TransactionalOpBatchService)
    # and takes the machine away from whatever comes next: such tests come last.
    items.sort(key=lambda item: "transaction" in item.nodeid)


@pytest.fixture(scope="session")
def rocketmq_version(request: pytest.FixtureRequest) -> str:
    """The version of Apache RocketMQ under test."""
    version: str = request.config.getoption("--rocketmq-version")
    return version


@pytest.fixture(scope="session")
def apache(rocketmq_version: str) -> Iterator[ApacheRocketMQ]:
    """A running cluster with two brokers, shared by the whole run."""
    with ApacheRocketMQ(rocketmq_version, brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def breakable_apache(rocketmq_version: str) -> Iterator[ApacheRocketMQ]:
    """A running cluster with two brokers, for tests that break and mend it."""
    with ApacheRocketMQ(rocketmq_version, brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def java_peer(apache: ApacheRocketMQ) -> Iterator[JavaPeer]:
    """A Java process for clients that need no process of their own, shared by the whole run."""
    with apache.java_peer() as peer:
        yield peer


@pytest.fixture(scope="session")
def java_admin(java_peer: JavaPeer) -> JavaAdmin:
    """RocketMQ's administration client, kept open for the whole run."""
    return java_peer.admin()


@pytest.fixture
def new_java_peer(apache: ApacheRocketMQ) -> Iterator[Callable[[], JavaPeer]]:
    """Starts Java processes of the test's own, to be killed or paused; they end with the test."""
    peers: list[JavaPeer] = []

    def start() -> JavaPeer:
        peers.append(apache.java_peer())
        return peers[-1]

    yield start
    for peer in peers:
        peer.stop()


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Makes names for topics and groups that no other test uses."""
    token, numbers = uuid4().hex[:8], count(1)
    return lambda stem: f"{stem}-{token}-{next(numbers)}"


@pytest.fixture
def topic_name(unique_name: Callable[[str], str]) -> str:
    """A topic name that no other test uses; not created."""
    return unique_name("topic")


@pytest.fixture
def group_name(unique_name: Callable[[str], str]) -> str:
    """A group name that no other test uses."""
    return unique_name("group")


@pytest.fixture
def topic(apache: ApacheRocketMQ, topic_name: str) -> str:
    """A topic of the test's own, with four queues on each of the two brokers."""
    apache.create_topic(topic_name, queues=4)
    return topic_name
