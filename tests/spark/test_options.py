from __future__ import annotations

import pickle

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.options import DEFAULT_GROUP, parse_read_options
from gimbalmq.spark.positions import EARLIEST, LATEST
from gimbalmq.spark.schema import COLUMNS
from gimbalmq.wire.names import is_group

LEAST = {"nameserver": "127.0.0.1:9876", "topic": "orders"}


def parse(**options):
    return parse_read_options(LEAST | options, {})


def test_a_name_server_and_a_topic_are_enough():
    options = parse()
    assert options.nameservers == ("127.0.0.1:9876",)
    assert options.topics == ("orders",)
    assert (options.start, options.end) == (EARLIEST, LATEST)
    assert [column.source for column in options.columns] == list(COLUMNS)
    assert options.fail_on_data_loss
    assert options.group is None
    assert (options.partitions_min, options.partition_records_max) == (None, None)


def test_a_read_without_a_group_pulls_in_the_name_of_one_that_brokers_may_create():
    assert parse().pull_group == DEFAULT_GROUP
    assert is_group(DEFAULT_GROUP)
    assert parse(group="billing").pull_group == "billing"


def test_keys_are_found_whatever_their_case():
    given = {"NameServer": "a:1;b:2", "TOPIC": "orders, refunds", "STARTINGoffsets": "Latest"}
    options = parse_read_options(given, {})
    assert options.nameservers == ("a:1", "b:2")
    assert options.topics == ("orders", "refunds")
    assert options.start == LATEST


def test_the_name_server_may_come_from_the_environment():
    options = parse_read_options({"topic": "orders"}, {"NAMESRV_ADDR": "10.0.0.1:9876"})
    assert options.nameservers == ("10.0.0.1:9876",)


def test_a_topic_named_twice_is_read_once():
    assert parse(topic="orders,refunds,orders").topics == ("orders", "refunds")


def test_options_travel_to_tasks():
    options = parse(startingOffsets='{"orders/broker-a/0": 17}', tags="a || b")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "filtered"),
    [({}, False), ({"tags": "*"}, False), ({"tags": "a"}, True), ({"sql": "n > 1"}, True)],
)
def test_a_read_knows_whether_the_broker_leaves_messages_out(given, filtered):
    assert parse(**given).filtered is filtered


def test_a_subscription_is_by_tags_or_by_sql():
    assert parse(tags="a || b").subscription("orders").tags == {"a", "b"}
    assert parse(sql="n > 1").subscription("orders").is_sql


WRONG = [
    ({"topc": "x"}, "unknown option 'topc': did you mean 'topic'?"),
    ({"zzz": "x"}, "unknown option 'zzz': A read knows nameserver"),
    ({"path": "/orders"}, "call load() without a path"),
    ({"nameserver": ""}, "option 'nameserver' is missing"),
    ({"nameserver": "localhost"}, "option 'nameserver': 'localhost' is not an address"),
    ({"topic": ""}, "option 'topic' is missing"),
    ({"topic": "a,,b"}, "option 'topic': '' is no topic name"),
    ({"topic": "a b"}, "option 'topic': 'a b' is no topic name"),
    ({"topicPattern": "a.*"}, "options 'topic' and 'topicPattern' exclude each other"),
    ({"group": "my group"}, "option 'group': 'my group' is no group name"),
    ({"startingOffsets": "first"}, "option 'startingOffsets' is 'first': write earliest"),
    ({"endingOffsets": "[1]"}, "option 'endingOffsets' is '[1]': write earliest"),
    ({"endingOffsets": "{}"}, "option 'endingOffsets' is '{}': write earliest"),
    ({"startingOffsets": '{"orders": 1}'}, "option 'startingOffsets': 'orders' is not a queue"),
    ({"startingOffsets": '{"o/b/0": -3}'}, "gives o/b/0 the offset -3"),
    ({"startingOffsets": '{"o/b/0": true}'}, "gives o/b/0 the offset true"),
    ({"startingOffsets": '{"o/b/0": "7"}'}, 'gives o/b/0 the offset "7"'),
    ({"startingOffsets": "committed"}, "add option 'group'"),
    ({"endingOffsets": "committed"}, "option 'endingOffsets' is 'committed'"),
    (
        {"startingOffsets": '{"o/b/0": 9}', "endingOffsets": '{"o/b/0": 3}'},
        "option 'endingOffsets' ends o/b/0 at 3, before 'startingOffsets' starts it at 9",
    ),
    ({"startingTimestamp": "today"}, "option 'startingTimestamp' is 'today', which is no time"),
    ({"endingTimestamp": "2025-11-15T08:00"}, "option 'endingTimestamp' is '2025-11-15T08:00' and says no time zone"),
    (
        {"startingTimestamp": "2000", "endingTimestamp": "1000"},
        "option 'endingTimestamp' (1000 ms) is before 'startingTimestamp' (2000 ms)",
    ),
    (
        {"startingTimestamp": "2000", "startingOffsets": "latest"},
        "options 'startingOffsets' and 'startingTimestamp' exclude each other",
    ),
    ({"tags": "||"}, "option 'tags' is '||' and names no tag"),
    ({"sql": " "}, "option 'sql' is empty"),
    ({"tags": "a", "sql": "b = 1"}, "options 'tags' and 'sql' exclude each other"),
    ({"columns": "body,bodyy"}, "option 'columns' names the unknown column 'bodyy': did you mean 'body'?"),
    ({"columns": ""}, "option 'columns' names the unknown column ''"),
    ({"columns": "body,BODY"}, "option 'columns' names column 'body' more than once"),
    ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' is 'maybe': write true or false"),
    ({"minPartitions": "0"}, "option 'minPartitions' is '0': write a whole number from 1 on"),
    ({"maxRecordsPerPartition": "many"}, "option 'maxRecordsPerPartition' is 'many'"),
    ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for streams"),
    ({"groupMode": "member"}, "option 'groupMode' is for streams"),
    ({"idColumn": "id"}, "option 'idColumn' is for writes"),
    ({"secretKey": "x"}, "option 'secretKey' is given without 'accessKey'"),
    ({"accessKey": "x"}, "option 'accessKey' is given without 'secretKey'"),
    ({"nameserver": "a:1,b:2"}, "option 'nameserver' is 'a:1,b:2': separate several by ';'"),
    (
        {"startingOffsets": '{"o/b/0": 1, "o/b/1": 2, "o/b/0": 3}'},
        "option 'startingOffsets' names o/b/0 more than once",
    ),
    (
        {"startingTimestamp": "1763193600"},
        "option 'startingTimestamp' is '1763193600', which looks like seconds",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), WRONG, ids=[text for _, text in WRONG])
def test_a_wrong_option_is_named_in_one_line(given, text):
    with pytest.raises(ConfigurationError) as caught:
        parse(**given)
    message = str(caught.value)
    assert text in message
    assert "\n" not in message


def test_a_bad_pattern_is_named():
    options = {"nameserver": "a:1", "topicPattern": "a("}
    with pytest.raises(ConfigurationError, match="option 'topicPattern' is no regular expression"):
        parse_read_options(options, {})


def test_a_secret_is_not_repeated_in_an_error():
    with pytest.raises(ConfigurationError) as caught:
        parse(secretKey="hunter2")
    assert "hunter2" not in str(caught.value)
