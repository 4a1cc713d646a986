from __future__ import annotations

import pickle

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.limits import DELAY_MAX_S, Limits
from gimbalmq.spark.positions import EARLIEST, LATEST
from gimbalmq.spark.stream_options import parse_stream_options

BASE = {"nameserver": "127.0.0.1:9876", "topic": "orders"}


def parse(**given):
    return parse_stream_options(BASE | given)


def test_a_stream_starts_at_the_latest_message_unless_told_otherwise():
    assert parse().read.start == LATEST
    assert parse(startingOffsets="earliest").read.start == EARLIEST


def test_limits_are_read_whatever_the_case_of_their_names():
    parsed = parse(
        MAXOFFSETSPERTRIGGER="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        maxBytesPerTrigger="64m",
    )
    assert parsed.limits == Limits(100, 64 << 20, 10, 30.0)
    assert parse().limits == Limits(delay_max_s=DELAY_MAX_S)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("15m", 900), ("1h", 3600), ("2 minutes", 120), ("1d", 86400)],
)
def test_durations(text, seconds):
    parsed = parse(minOffsetsPerTrigger="1", maxTriggerDelay=text)
    assert parsed.limits.delay_max_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("2k", 2048), ("3MB", 3 << 20), ("1g", 1 << 30)]
)
def test_sizes(text, size):
    assert parse(maxBytesPerTrigger=text).limits.bytes_max == size


def test_offsets_are_committed_for_a_stream_with_a_group_unless_told_otherwise():
    assert not parse().commit_offsets
    assert parse(group="g").commit_offsets
    assert not parse(group="g", commitOffsets="false").commit_offsets


def test_a_member_reads_the_retry_topic_of_its_group_without_a_filter():
    parsed = parse(group="g", groupMode="member", tags="paid", allocation="AVG_BY_CIRCLE")
    assert parsed.is_member
    assert parsed.allocation == "AVG_BY_CIRCLE"
    assert parsed.read.retry_topic == "%RETRY%g"
    assert parsed.read.subscription("orders").tags == {"paid"}
    assert parsed.read.subscription("%RETRY%g").expression == "*"
    assert parse(group="g", tags="paid").read.retry_topic is None


def test_options_travel_to_other_processes():
    assert pickle.loads(pickle.dumps(parse(group="g"))) == parse(group="g")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is for batch reads"),
        ({"endingTimestamp": "5"}, "option 'endingTimestamp' is for batch reads"),
        ({"maxOffsetsPerTrigger": "0"}, "option 'maxOffsetsPerTrigger' is '0': write a whole"),
        ({"minOffsetsPerTrigger": "x"}, "option 'minOffsetsPerTrigger' is 'x': write a whole"),
        ({"maxTriggerDelay": "5s"}, "option 'maxTriggerDelay' says how long to wait"),
        (
            {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
            "option 'maxTriggerDelay' is 'soon', which is no duration",
        ),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            r"option 'minOffsetsPerTrigger' \(9\) is above 'maxOffsetsPerTrigger' \(8\)",
        ),
        ({"maxBytesPerTrigger": "much"}, "option 'maxBytesPerTrigger' is 'much', which is no size"),
        ({"maxBytesPerTrigger": "0"}, "option 'maxBytesPerTrigger' is '0', which is no size"),
        ({"commitOffsets": "true"}, "option 'commitOffsets' is true, but no group is named"),
        ({"commitOffsets": "yes", "group": "g"}, "option 'commitOffsets' is 'yes': write true"),
        ({"groupMode": "solo"}, "option 'groupMode' is 'solo': write exclusive or member"),
        ({"groupMode": "member"}, "option 'groupMode' is 'member', but no group is named"),
        (
            {"groupMode": "member", "group": "g", "commitOffsets": "false"},
            "option 'commitOffsets' is false, but members hand queues over",
        ),
        (
            {"groupMode": "member", "group": "g", "startingOffsets": '{"orders/a/0": 1}'},
            "option 'startingOffsets' lists offsets by queue, but a member",
        ),
        ({"allocation": "AVG"}, "option 'allocation' is for members of a group"),
        (
            {"groupMode": "member", "group": "g", "allocation": "FAIR"},
            "option 'allocation': .*'FAIR'",
        ),
        ({"startingOffsets": "committed"}, "option 'startingOffsets' is 'committed', but no group"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_option(given, text):
    with pytest.raises(ConfigurationError, match=text):
        parse(**given)
