"""`df.write.format("rocketmq")`, batch and streaming, against an embedded cluster."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField

from gimbalmq import Admin
from gimbalmq.broker import BrokerSettings, EmbeddedCluster
from gimbalmq.errors import ConfigurationError, TopicNotFoundError
from gimbalmq.spark.ids import ROW_ID_PROPERTY, deduplicated
from gimbalmq.spark.sink import _write
from gimbalmq.spark.write_columns import layout_of
from gimbalmq.spark.write_options import parse_write_options
from waiting import eventually


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2, processes=True) as running:
        yield running


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create_topic(topic_name, queues=4)
    return topic_name


@pytest.fixture
def read(spark, cluster):
    def load(topic, **options):
        reader = spark.read.format("rocketmq").option("nameserver", cluster.nameserver)
        return reader.options(topic=topic, **options).load()

    return load


@pytest.fixture
def write(cluster):
    def save(frame, mode="append", **options):
        writer = frame.write.format("rocketmq").mode(mode)
        writer.option("nameserver", cluster.nameserver).options(**options).save()

    return save


def first_line(caught):
    return str(caught.value).splitlines()[0]


@pytest.mark.matrix
def test_every_kind_of_column_is_written(spark, topic, read, write):
    frame = spark.sql(
        "select 'one' as body, 'paid' as tags, array('a', 'b') as keys, 'k' as sharding_key, "
        "map('shop', '7') as properties, cast(null as int) as delay_level"
    )
    write(frame, topic=topic)
    [row] = read(topic).collect()
    assert (bytes(row.body), row.tags, row.keys) == (b"one", "paid", "a b")
    assert row.properties["shop"] == "7"
    assert row.properties["__SHARDINGKEY"] == "k"


def test_a_frame_that_was_read_can_be_written(spark, cluster, topic, unique_name, read, write):
    copy = unique_name("copy")
    cluster.create_topic(copy, queues=2)
    write(spark.range(1000).select(f.col("id").cast("string").alias("body")), topic=topic)
    write(read(topic), topic=copy)
    there, back = read(topic), read(copy)
    assert Counter(r.body for r in there.collect()) == Counter(r.body for r in back.collect())
    assert back.select(f.col("properties")[ROW_ID_PROPERTY]).distinct().count() == 1000


@pytest.mark.matrix
def test_rows_written_twice_are_read_once(spark, topic, read, write):
    rows = spark.range(500).select(f.concat(f.lit("row "), "id").alias("body"))
    write(rows, topic=topic)
    write(rows.repartition(3), topic=topic, maxInFlight="7")
    assert read(topic).count() == 1000
    once = deduplicated(read(topic))
    assert once.columns == read(topic).columns
    assert sorted(r.body for r in once.collect()) == sorted(
        f"row {number}".encode() for number in range(500)
    )


@pytest.mark.matrix
def test_a_stream_is_written_and_a_replayed_batch_has_the_same_ids(
    spark, cluster, topic, read, tmp_path
):
    source = tmp_path / "in"
    spark.range(200).select(f.col("id").cast("string").alias("value")).coalesce(1).write.text(
        str(source)
    )

    def run():
        query = (
            spark.readStream.text(str(source))
            .withColumnRenamed("value", "body")
            .writeStream.format("rocketmq")
            .option("nameserver", cluster.nameserver)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    # As after a crash between the write and the mark that says so.
    for mark in (tmp_path / "checkpoint" / "commits").iterdir():
        mark.unlink()
    run()
    assert read(topic).count() == 400
    assert deduplicated(read(topic)).count() == 200


@pytest.mark.parametrize(
    ("sql", "options", "part"),
    [
        ("select 1 as value", {}, "column 'value' is no part of a message"),
        ("select 1 as body", {}, "column 'body' has type int"),
        ("select 'x' as body", {"selector": "any"}, "option 'selector' is 'any'"),
        ("select 'x' as body", {"idColumn": "id"}, "option 'idColumn' names 'id'"),
        ("select 'x' as body", {"tags": "a"}, "option 'tags' is for reads"),
    ],
)
def test_what_cannot_be_written_is_said_in_the_first_line(spark, write, topic, sql, options, part):
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(sql), topic=topic, **options)
    assert part in first_line(caught)


def test_a_row_that_cannot_be_written_is_named_in_the_first_lines(spark, write, topic):
    with pytest.raises(PySparkException) as caught:
        write(spark.sql("select cast(null as string) as body"), topic=topic)
    words = "row 0 of partition 0 cannot be written: column 'body': it is null"
    assert words in " ".join(str(caught.value).splitlines()[:3])


def test_a_topic_cannot_be_overwritten(spark, write, topic):
    with pytest.raises(PySparkException) as caught:
        write(spark.sql("select 'x' as body"), mode="overwrite", topic=topic)
    assert "a topic cannot be overwritten" in str(caught.value)


def test_a_name_server_that_is_not_there_is_named(spark):
    writer = spark.sql("select 'x' as body").write.format("rocketmq").mode("append")
    with pytest.raises(PySparkException) as caught:
        writer.options(nameserver="127.0.0.1:1", topic="t").save()
    words = "option 'nameserver' is '127.0.0.1:1': no name server could be asked"
    assert words in " ".join(str(caught.value).splitlines()[:2])


@pytest.mark.parametrize(
    ("options", "said_by"), [({"topic": "nosuch"}, "option 'topic'"), ({}, "column 'topic'")]
)
def test_an_unknown_topic_is_named_with_who_said_it(options, said_by):
    with EmbeddedCluster(settings=BrokerSettings(auto_create_topic=False)) as cluster:
        parsed = parse_write_options({"nameserver": cluster.nameserver, **options})
        fields = [StructField("body", StringType()), StructField("topic", StringType())]
        rows = pa.record_batch({"body": ["x"], "topic": ["nosuch"]})
        with pytest.raises(TopicNotFoundError, match=f"^{said_by}: topic 'nosuch' does not exist"):
            _write(iter([rows]), parsed, layout_of(fields, topic=parsed.topic))


def test_deduplicated_says_what_it_needs(spark, topic, read):
    with pytest.raises(ConfigurationError, match="lacks message_id, properties"):
        deduplicated(read(topic).select("topic", "body"))
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match="within"):
        deduplicated(stream)


def test_java_finds_equal_keys_where_its_own_hash_puts_them(spark, apache, java_peer, topic_name):
    apache.create_topic(topic_name, queues=4)
    keys = [f"order-{number}" for number in range(50)] + ["größe", "鍵"]
    rows = [(key, key) for key in keys]
    writer = spark.createDataFrame(rows, "body string, sharding_key string").write
    writer.format("rocketmq").mode("append").options(
        nameserver=apache.nameserver, topic=topic_name
    ).save()
    with Admin(apache.nameserver) as admin:
        # A broker indexes a little later than it acknowledges.
        offsets = lambda: admin.offsets("nobody", topic_name).values()  # noqa: E731
        eventually(lambda: sum(one.maximum for one in offsets()) >= len(keys))
    reader = spark.read.format("rocketmq").options(nameserver=apache.nameserver, topic=topic_name)
    found = {bytes(r.body).decode(): (r.broker, r.queue_id) for r in reader.load().collect()}
    from gimbalmq.model.message import Message

    java = java_peer.producer("spark-sink")
    sent = java.send(*(Message(topic_name, b"x", sharding_key=key) for key in keys))
    assert found == {
        key: (one.queue.broker, one.queue.queue_id) for key, one in zip(keys, sent, strict=True)
    }
