"""Brokers and name servers that freeze under load, as a long garbage collection would do it."""

import os
import threading
from pathlib import Path

import pytest

from gimbalmq import PushConsumer
from interop.test_failures import Load

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(200, func_only=True)]


@pytest.fixture
def frozen_topic(breakable_rocketmq, topic_name):
    breakable_rocketmq.create_topic(topic_name, queues=4)
    return topic_name


def holdings():
    """Our threads and this process's sockets."""
    threads = sum(thread.name.startswith("gimbalmq-") for thread in threading.enumerate())
    links = (_target(path) for path in Path("/proc/self/fd").iterdir())
    return threads, sum(link.startswith("socket:") for link in links)


def no_more_than(before):
    return all(now <= then for now, then in zip(holdings(), before, strict=True))


def _target(path):
    try:
        return os.readlink(path)  # noqa: PTH115 - the text is no path
    except FileNotFoundError:  # closed between the listing and now
        return ""


@pytest.mark.parametrize("name", ["broker-a", "nameserver"])
def test_clients_recover_by_themselves_from_a_frozen_server(
    breakable_rocketmq, frozen_topic, group_name, eventually, name
):
    got = set()
    before = holdings()
    consumer = PushConsumer(
        group_name,
        nameserver=breakable_rocketmq.nameserver,
        start_from="first",
        heartbeat_broker_interval_s=1.0,
        poll_name_server_interval_s=1.0,
        rebalance_interval_s=2.0,
    )
    consumer.subscribe(frozen_topic, listener=lambda message: got.add(int(message.body)))
    with consumer, Load(breakable_rocketmq.nameserver, frozen_topic, timeout_s=2.0) as load:
        eventually(load.more(50, "broker-a"))
        eventually(lambda: got)
        for first in (True, False):
            breakable_rocketmq.pause(name)
            try:
                # While a broker is frozen, every other message waits for its time limit.
                eventually(load.more(8, "broker-b"), 60.0)
                eventually(lambda: name == "nameserver" or load.failed, 30.0)
            finally:
                breakable_rocketmq.resume(name)
            eventually(load.more(50, "broker-a"), 60.0)
            if first:  # a connection that is opened when first needed may have come
                recovered = holdings()
        eventually(lambda: no_more_than(recovered), 30.0)
        stored = {number for number, _ in load.stored}
        eventually(lambda: got >= stored, 60.0)
        assert not (name == "nameserver" and load.failed), "messages flow without a name server"
    eventually(lambda: no_more_than(before), 30.0)
