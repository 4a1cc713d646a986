"""The pytest plugin: a RocketMQ cluster for tests as the fixture `rocketmq`.

    def test_orders_are_billed(rocketmq):
        rocketmq.create_topic("orders", queues=4)
        with Producer("shop", nameserver=rocketmq.nameserver) as producer:
            ...

It is the embedded cluster, which starts at once and needs no Java, and the real Apache RocketMQ
with `--rocketmq-engine=apache`. One cluster serves a whole run: give topics and groups names of
their own. Installed with the package; nothing starts before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gimbalmq.testing.engines import DEFAULT_ENGINE, ENGINES, Cluster, ClusterOptions
from gimbalmq.testing.jars import VERSIONS

__all__ = ["pytest_addoption", "rocketmq", "rocketmq_engine", "rocketmq_version"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the cluster."""
    group = parser.getgroup("rocketmq", "RocketMQ for tests")
    group.addoption(
        "--rocketmq-engine",
        choices=list(ENGINES),
        help=f"the cluster that tests run on (default: {DEFAULT_ENGINE})",
    )
    group.addoption(
        "--rocketmq-version",
        choices=VERSIONS,
        default=VERSIONS[0],
        help="version of Apache RocketMQ, of its servers and of Java clients (default: %(default)s)",
    )
    group.addoption(
        "--rocketmq-brokers",
        type=int,
        default=1,
        help="how many brokers the cluster of `rocketmq` has (default: %(default)s)",
    )


@pytest.fixture(scope="session")
def rocketmq_engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine that was asked for: `embedded` or `apache`."""
    chosen: str | None = request.config.getoption("--rocketmq-engine")
    return chosen or DEFAULT_ENGINE


@pytest.fixture(scope="session")
def rocketmq_version(request: pytest.FixtureRequest) -> str:
    """The version of Apache RocketMQ that was asked for."""
    version: str = request.config.getoption("--rocketmq-version")
    return version


@pytest.fixture(scope="session")
def rocketmq(
    request: pytest.FixtureRequest, rocketmq_engine: str, rocketmq_version: str
) -> Iterator[Cluster]:
    """A running cluster for the whole run: `.nameserver`, `.brokers`, `.create_topic(...)`."""
    options = ClusterOptions(
        version=rocketmq_version if rocketmq_engine == "apache" else None,
        brokers=request.config.getoption("--rocketmq-brokers"),
    )
    cluster = ENGINES[rocketmq_engine].make(options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
