"""Keys, TLS and a namespace for reads, members, commits and writes: on a cluster that wants all of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.errors import ConfigurationError, GimbalError
from gimbalmq.spark import RocketMQDataSource, connections
from gimbalmq.spark.options import parse_read_options
from gimbalmq.spark.sink import _write
from gimbalmq.spark.sink_sending import discard_producer
from gimbalmq.spark.write_columns import layout_of
from gimbalmq.spark.write_options import parse_write_options
from spark.micro_batches import SCHEMA, Query
from spark.test_write_columns import fields
from transport.certificates import AUTHORITY, FOLDER, client_context, server_files

SECRET = "s3cret-word"
ACCESS = {
    "accessKey": "shop",
    "secretKey": SECRET,
    "tlsCaFile": str(AUTHORITY),
    "tlsCertFile": str(FOLDER / "client.pem"),
    "tlsKeyFile": str(FOLDER / "client.key"),
    "namespace": "tenant",
}
CLIENT = {
    "access_key": "shop",
    "secret_key": SECRET,
    "tls": client_context(shows_client=True),
    "namespace": "tenant",
}


@pytest.fixture(scope="module")
def guarded():
    account = Account(access_key="shop", secret_key=SECRET, admin=True)
    tls = server_files(wants_client=True)
    with EmbeddedCluster(brokers=2, accounts=[account], tls=tls) as cluster:
        yield cluster
    for idle in connections._idle.values():
        while idle:
            idle.pop().close()


@pytest.fixture
def topic(guarded, topic_name):
    """A topic of the namespace, and one of the same name outside with other messages."""
    for name in (topic_name, f"tenant%{topic_name}"):
        guarded.create_topic(name, queues=2)
    outside = CLIENT | {"namespace": None}
    with Producer("others", nameserver=guarded.nameserver, **outside) as producer:
        producer.send(Message(topic_name, b"foreign"))
    return topic_name


def send(guarded, topic, count):
    with Producer("loaders", nameserver=guarded.nameserver, **CLIENT) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


def batch(guarded, **options):
    given = {"nameserver": guarded.nameserver, **ACCESS, **options}
    reader = RocketMQDataSource(CaseInsensitiveDict(given)).reader(SCHEMA)
    parts = reader.partitions()
    return [row for part in parts for one in reader.read(part) for row in one.to_pylist()]


def test_a_batch_read_sees_its_namespace_under_the_users_names(guarded, topic):
    send(guarded, topic, 20)
    expected = sorted(b"%d" % number for number in range(20))
    for wanted in ({"topic": topic}, {"topicPattern": f"{topic[:-1]}."}):
        rows = batch(guarded, **wanted)
        assert sorted(row["body"] for row in rows) == expected
        assert {row["topic"] for row in rows} == {topic}
    offsets = {f"{topic}/{row['broker']}/{row['queue_id']}": -1 for row in rows}
    path = min(offsets)
    given = str(offsets | {path: 0}).replace("'", '"')
    first = [row for row in rows if path == f"{topic}/{row['broker']}/{row['queue_id']}"]
    assert len(batch(guarded, topic=topic, startingOffsets=given)) == len(first)


@pytest.mark.parametrize("mode", ["exclusive", "member"])
def test_a_stream_commits_to_the_group_of_its_namespace(guarded, topic, group_name, caplog, mode):
    caplog.set_level("DEBUG")
    send(guarded, topic, 20)
    options = {"nameserver": guarded.nameserver, "topic": topic, "group": group_name}
    options |= {"startingOffsets": "earliest", "groupMode": mode}
    with Query(**options, **ACCESS) as job:
        job.available_now()
        assert sorted(row["body"] for row in job.all_rows) == sorted(b"%d" % n for n in range(20))
        assert all("tenant" not in path for path in job.offsets())
        assert {path.split("/")[0] for path in job.offsets()} >= {topic}
        shown = repr((job.start().reader._options, job.log, vars(job.reader)))
    with Admin(guarded.nameserver, **CLIENT) as admin:
        found = admin.offsets(group_name, topic).values()
        assert sum(one.committed for one in found) == 20
    assert SECRET not in shown
    assert SECRET not in caplog.text


def test_rows_are_written_into_the_namespace(guarded, topic):
    for given in ({"topic": topic}, {}):
        options = parse_write_options({"nameserver": guarded.nameserver, **ACCESS, **given})
        assert SECRET not in repr(options)
        layout = layout_of(fields("body binary", "topic string"), topic=options.topic)
        rows = pa.record_batch({"body": [b"a", b"b"], "topic": [topic, topic]})
        try:
            assert _write(iter([rows]), options, layout).rows == 2
        finally:
            discard_producer(options)
    assert sorted(row["body"] for row in batch(guarded, topic=topic)) == [b"a", b"a", b"b", b"b"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"secretKey": "wr0ng-word"}, "secret key does not belong"),
        ({"accessKey": None, "secretKey": None}, "asks for keys"),
        ({"tlsCaFile": None}, "certificate is not accepted"),
    ],
)
def test_whoever_is_not_let_in_is_told_so(guarded, topic, changed, words):
    given = {"topic": topic} | ACCESS | changed
    given = {name: value for name, value in given.items() if value is not None}
    source = RocketMQDataSource(CaseInsensitiveDict({"nameserver": guarded.nameserver} | given))
    with pytest.raises(GimbalError, match=words) as caught:
        source.reader(SCHEMA).partitions()
    assert "-word" not in str(caught.value)


def test_an_endpoint_of_an_instance_stands_for_its_namespace():
    given = {"nameserver": "MQ_INST_12_ab.mq.example.com:80", "topic": "orders", "group": "g"}
    options = parse_read_options(given)
    assert (options.topics, options.group) == (("MQ_INST_12_ab%orders",), "MQ_INST_12_ab%g")
    assert parse_read_options(given | {"namespace": "own"}).topics == ("own%orders",)


@pytest.mark.parametrize("name", ["", "a%b", "a b"])
def test_a_namespace_that_cannot_be_is_named(name):
    with pytest.raises(ConfigurationError, match="option 'namespace' is"):
        parse_read_options({"nameserver": "a:1", "topic": "t", "namespace": name})
