"""Two processes under one client id, on the embedded cluster: nothing keeps them apart, so say so."""

import logging
import subprocess
import sys

import pytest

from gimbalmq import PushConsumer
from gimbalmq.broker import EmbeddedCluster
from waiting import eventually

OTHER_PROCESS = """
import sys
from gimbalmq import PushConsumer
_, nameserver, group, topic = sys.argv
consumer = PushConsumer(group, nameserver=nameserver, client_id="ann", ordered=True)
consumer.subscribe(topic, listener=lambda message: None)
with consumer:
    sys.stdin.read()
"""


@pytest.fixture
def cluster():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=4)
        yield cluster


@pytest.mark.rule("B10.4")
def test_pitfall_4_a_member_whose_id_another_process_uses_is_not_ready(cluster, caplog):
    consumer = PushConsumer("billing", nameserver=cluster.nameserver, client_id="ann", ordered=True)
    consumer.subscribe("orders", listener=lambda _message: None)
    command = [sys.executable, "-c", OTHER_PROCESS, cluster.nameserver, "billing", "orders"]
    with caplog.at_level(logging.WARNING, "gimbalmq"), consumer:
        eventually(lambda: consumer.probe().ready)
        with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
            try:
                eventually(lambda: not consumer.probe().ready)
                (reason,) = consumer.probe().reasons
                assert "another process uses the client id 'ann@gmq1-AVG'" in reason
                assert consumer.probe().live, "a restart would not help"
            finally:
                other.stdin.close()
                other.wait(20)
        eventually(lambda: consumer.probe().ready)
    said = [one.gimbalmq for one in caplog.records if hasattr(one, "gimbalmq")]
    shared = [one for one in said if one["event"] == "shared client id"]
    assert shared == [
        {"event": "shared client id", "group": "billing", "members": ["ann@gmq1-AVG"]}
    ]
