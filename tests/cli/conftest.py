import pytest

from gimbalmq import PushConsumer
from gimbalmq.broker import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster():
    """A cluster in pure Python, for commands that talk to one."""
    with EmbeddedCluster(2) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, unique_name):
    """A topic with two queues on each broker."""
    name = unique_name("topic")
    cluster.create_topic(name, queues=2)
    return name


@pytest.fixture
def group(unique_name):
    return unique_name("group")


@pytest.fixture
def member(cluster, group, topic):
    """Starts members of the group, on the topic unless others are named; they stop with the test."""
    started = []

    def start(name, *topics, tags="*", listener=lambda message: None, on=cluster, **options):
        options = {"start_from": "first", "persist_consumer_offset_interval_s": 0.1, **options}
        consumer = PushConsumer(group, nameserver=on.nameserver, client_id=name, **options)
        for one in topics or (topic,):
            consumer.subscribe(one, tags, listener=listener)
        started.append(consumer)
        return consumer.start()

    yield start
    for consumer in started:
        consumer.stop(drain_s=0.5)
