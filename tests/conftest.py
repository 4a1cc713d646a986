"""Fixtures that every folder may use: clusters and Java peers, started once a run.

`rocketmq` is shared by all tests of a run, which leave its servers alone. Tests that kill, pause or
restart servers use `breakable_rocketmq` and put it right before they end; its clients are their
own, because a client's first call after such an event may fail. Both are the real RocketMQ unless
`--rocketmq-engine=embedded` is given; `apache` is always the real one.

Tests that use any of these carry the marker `apache` by themselves; those that run on either engine
also carry `engines`. "Once a run" means once in each process of pytest.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from gimbalmq.broker import BrokerSettings, EmbeddedCluster
from gimbalmq.testing import ApacheRocketMQ, JavaAdmin, JavaPeer
from gimbalmq.testing import mqadmin as run_mqadmin
from java_clients import LIVELY

# How long an example takes says more about the machine than about the code.
settings.register_profile("no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-clock")

#: How often a broker looks for transactions to ask about; by default every 30 s (4.x: 60). Their
#: time limit stays 6 s: 5.x notes the end of one up to 3 s late, and would ask about all of them.
TRANSACTION_CHECK_MS = 2_000


#: Files that take the better part of a minute begin first, the longest before the others: two
#: processes that share the files are done when the later of them is.
LONG_FILES = (
    "tests/spark/test_stream_crash.py",
    "tests/test_docs.py",
    "tests/interop/test_every_strategy.py",
    "tests/interop/test_mixed_group.py",
    "tests/interop/test_failures.py",
    "tests/broker/test_java.py",
    "tests/broker/test_agreement.py",
    "tests/cli/test_demo.py",
    "tests/interop/test_old_queues.py",
)


def pytest_configure(config: pytest.Config) -> None:
    # With --dist loadfile, xdist would begin with the files that have the most tests.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    # What a script starts in the background ignores interrupts, and passes that on to every
    # program that a test interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _place(item: pytest.Item) -> tuple[bool, int]:
    """Where a test stands in the run; those with the same place keep their random order."""
    # After its first transaction a 5.5.0 broker keeps a thread spinning (TransactionalOpBatchService)
    # and takes the machine away from whatever comes next: such tests come last.
    last = "transaction" in item.nodeid
    file = item.nodeid.partition("::")[0]
    return last, LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:  # before -m looks at the markers
        names = getattr(item, "fixturenames", ())
        if "rocketmq_version" in names:
            item.add_marker(pytest.mark.apache)
        if "rocketmq_engine" in names and not {"apache", "breakable_apache"} & set(names):
            item.add_marker(pytest.mark.engines)
    yield
    items.sort(key=_place)


@pytest.fixture(scope="session")
def rocketmq_engine(request: pytest.FixtureRequest) -> str:
    """The engine under test; here the real one, where the plugin has the embedded one."""
    chosen: str | None = request.config.getoption("--rocketmq-engine")
    return chosen or "apache"


@pytest.fixture(scope="session")
def server_version(rocketmq_engine: str, rocketmq_version: str) -> str:
    """The version of RocketMQ whose rules the servers follow."""
    return "5.5.0" if rocketmq_engine == "embedded" else rocketmq_version


@pytest.fixture(scope="session")
def apache(rocketmq_version: str) -> Iterator[ApacheRocketMQ]:
    """The real RocketMQ with two brokers, shared by the whole run."""
    config = {"transactionCheckInterval": str(TRANSACTION_CHECK_MS)}
    with ApacheRocketMQ(rocketmq_version, brokers=2, broker_config=config) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def breakable_apache(rocketmq_version: str) -> Iterator[ApacheRocketMQ]:
    """The real RocketMQ with two brokers, for tests that break and mend it."""
    with ApacheRocketMQ(rocketmq_version, brokers=2) as cluster:
        yield cluster


def _cluster(
    request: pytest.FixtureRequest, engine: str, real: str
) -> Iterator[ApacheRocketMQ | EmbeddedCluster]:
    if engine == "apache":
        yield request.getfixturevalue(real)
        return
    asking = BrokerSettings(transaction_check_ms=TRANSACTION_CHECK_MS)
    with EmbeddedCluster(brokers=2, settings=asking, processes=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def rocketmq(
    request: pytest.FixtureRequest, rocketmq_engine: str, rocketmq_version: str
) -> Iterator[ApacheRocketMQ | EmbeddedCluster]:
    """A running cluster with two brokers, shared by the whole run."""
    yield from _cluster(request, rocketmq_engine, "apache")


@pytest.fixture(scope="session")
def breakable_rocketmq(
    request: pytest.FixtureRequest, rocketmq_engine: str, rocketmq_version: str
) -> Iterator[ApacheRocketMQ | EmbeddedCluster]:
    """A running cluster with two brokers, for tests that break and mend it."""
    yield from _cluster(request, rocketmq_engine, "breakable_apache")


@pytest.fixture(scope="session")
def mqadmin(
    rocketmq: ApacheRocketMQ | EmbeddedCluster, rocketmq_version: str
) -> Callable[..., str]:
    """RocketMQ's own command line on the shared cluster."""

    def run(*arguments: str) -> str:
        return run_mqadmin(rocketmq.nameserver, *arguments, version=rocketmq_version)

    return run


@pytest.fixture(scope="session")
def java_peer(
    rocketmq: ApacheRocketMQ | EmbeddedCluster, rocketmq_version: str
) -> Iterator[JavaPeer]:
    """A Java process for clients that need no process of their own, shared by the whole run."""
    peer = JavaPeer(rocketmq.nameserver, version=rocketmq_version, **LIVELY).start()
    yield peer
    # The cluster goes, too: nobody needs the good-bye of each client, which takes seconds.
    peer.kill()


@pytest.fixture(scope="session")
def java_admin(java_peer: JavaPeer) -> JavaAdmin:
    """RocketMQ's administration client, kept open for the whole run."""
    return java_peer.admin()


@pytest.fixture
def new_java_peer(
    rocketmq: ApacheRocketMQ | EmbeddedCluster, rocketmq_version: str
) -> Iterator[Callable[[], JavaPeer]]:
    """Starts Java processes of the test's own, to be killed or paused; they end with the test."""
    peers: list[JavaPeer] = []

    def start() -> JavaPeer:
        peer = JavaPeer(rocketmq.nameserver, version=rocketmq_version, **LIVELY)
        peers.append(peer.start())
        return peer

    yield start
    for peer in peers:
        peer.kill()


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
def topic(rocketmq: ApacheRocketMQ | EmbeddedCluster, topic_name: str) -> str:
    """A topic of the test's own, with four queues on each of the two brokers."""
    rocketmq.create_topic(topic_name, queues=4)
    return topic_name


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key, for one run; made by the openssl program, which every Linux has."""
    program = shutil.which("openssl")
    assert program, "the openssl program is needed to make a certificate for this test"
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *(program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
