from __future__ import annotations

from pathlib import Path

import pytest

from gimbalmq import __version__
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.store import FlushPolicy
from gimbalmq.errors import ConfigurationError
from gimbalmq.testing import ApacheRocketMQ
from gimbalmq.testing.engines import DEFAULT_ENGINE, ENGINES, ClusterOptions, EmbeddedOptions


def test_the_embedded_cluster_is_the_default_and_has_our_version():
    assert DEFAULT_ENGINE == "embedded"
    assert list(ENGINES["embedded"].versions()) == [__version__]
    assert "5.5.0" in ENGINES["apache"].versions()


def test_an_engine_makes_what_was_asked_for(tmp_path):
    own = EmbeddedOptions(flush=FlushPolicy.EACH, faithful=True)
    options = ClusterOptions(brokers=2, data=tmp_path, embedded=own)
    cluster = ENGINES["embedded"].make(options)
    assert isinstance(cluster, EmbeddedCluster)
    cluster.start()
    try:
        assert [broker.name for broker in cluster.brokers] == ["broker-a", "broker-b"]
        assert cluster.folder == tmp_path
        cluster.create_topic("orders", queues=2)
        cluster.kill("broker-b")
        assert [broker.running for broker in cluster.brokers] == [True, False]
        cluster.restart("broker-b")
        cluster.check()
    finally:
        cluster.stop()


def test_the_real_one_is_made_of_its_newest_version_unless_told_otherwise():
    made = ENGINES["apache"].make(ClusterOptions())
    assert isinstance(made, ApacheRocketMQ)
    assert made.version == "5.5.0"
    older = ENGINES["apache"].make(ClusterOptions(version="4.9.5"))
    assert isinstance(older, ApacheRocketMQ)
    assert older.version == "4.9.5"


@pytest.mark.parametrize("name", ENGINES)
def test_a_version_that_there_is_not_is_refused(name):
    with pytest.raises(ConfigurationError, match=r"no version '1\.0'.*there is"):
        ENGINES[name].make(ClusterOptions(version="1.0"))


def test_the_real_one_refuses_what_only_the_embedded_one_has():
    with pytest.raises(ConfigurationError, match="options of the embedded"):
        ENGINES["apache"].make(ClusterOptions(data=Path(), embedded=EmbeddedOptions(faithful=True)))
