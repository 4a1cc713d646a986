from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark import RocketMQDataSource
from gimbalmq.spark.schema import COLUMNS

SUBSET = StructType([StructField("body", BinaryType()), StructField("queue_offset", LongType())])


def source(**options):
    given = CaseInsensitiveDict({"nameserver": "127.0.0.1:1", "topic": "orders"} | options)
    return RocketMQDataSource(given)


def test_the_format_is_called_rocketmq():
    assert RocketMQDataSource.name() == "rocketmq"


def test_the_schema_has_all_columns_or_those_asked_for():
    assert source().schema() == ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    assert source(columns="body").schema() == "`body` binary"


def test_an_unknown_option_is_refused_before_anything_else():
    with pytest.raises(ConfigurationError, match="unknown option 'topics': did you mean 'topic'"):
        source(topics="x")


def test_options_are_checked_when_the_schema_is_asked_for():
    with pytest.raises(ConfigurationError, match="option 'minPartitions'"):
        source(minPartitions="x").schema()


def test_a_schema_of_the_user_is_checked():
    wrong = StructType([StructField("body", StringType())])
    with pytest.raises(ConfigurationError, match="column 'body' of the schema has type string"):
        source().reader(wrong)


def test_columns_and_schema_must_agree():
    source(Columns="body,queue_offset").reader(SUBSET)
    with pytest.raises(ConfigurationError, match="option 'columns' names topic, but the schema"):
        source(columns="topic").reader(SUBSET)


def test_source_and_reader_travel_to_other_processes():
    reader = pickle.loads(pickle.dumps(source().reader(SUBSET)))
    assert [column.source for column in reader._columns] == ["body", "queue_offset"]
    assert pickle.loads(pickle.dumps(source())).schema() == source().schema()


def test_a_write_by_key_needs_a_column_with_keys():
    keyed = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])
    plain = StructType([StructField("body", BinaryType())])
    source(selector="key").writer(keyed, overwrite=False)
    source(selector="roundRobin").writer(plain, overwrite=False)
    for make in (source(selector="key").writer, source(selector="key").streamWriter):
        with pytest.raises(ConfigurationError, match="option 'selector' is 'key', but the frame"):
            make(plain, overwrite=False)


def test_the_partition_that_spark_makes_of_an_empty_plan_has_no_rows():
    assert list(source().reader(SUBSET).read(InputPartition(None))) == []


def test_a_stream_reader_has_the_options_of_streams():
    reader = source(maxOffsetsPerTrigger="5").streamReader(SUBSET)
    assert reader.initialOffset() == {"@": "latest"}
    assert source(maxOffsetsPerTrigger="5", columns="body").schema() == "`body` binary"
    with pytest.raises(ConfigurationError, match="option 'maxOffsetsPerTrigger' is for streams"):
        source(maxOffsetsPerTrigger="5").reader(SUBSET)
    with pytest.raises(ConfigurationError, match="option 'maxOffsetsPerTrigger' is 'x'"):
        source(maxOffsetsPerTrigger="x").schema()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is for batch reads"),
        ({"columns": "topic"}, "option 'columns' names topic, but the schema"),
    ],
)
def test_a_stream_that_cannot_be_says_so_at_the_first_question(options, text):
    """Not when the reader is made: Spark would lose the error."""
    reader = pickle.loads(pickle.dumps(source(**options).streamReader(SUBSET)))
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, None),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(None)),
    ):
        with pytest.raises(ConfigurationError, match=text):
            ask()
    reader.stop()
