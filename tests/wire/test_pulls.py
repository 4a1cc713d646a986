from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.acl import Credentials, sign
from gimbalmq.wire.command import Command, ReadyCommand, decode_command, encode_command
from gimbalmq.wire.headers import pull_request
from gimbalmq.wire.pulls import PullRequests

QUEUE = MessageQueue("orders", "broker-a", 3)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["%RETRY%billing", "%d", "%%", '"', "\\", "2000000000", "\x00gap\x00"[:3]]
)
numbers = st.integers(0, (1 << 63) - 1)
places = st.fixed_dictionaries(
    {
        "offset": numbers,
        "sys_flag": st.integers(0, 255),
        "commit_offset": numbers,
        "subscription_version_ms": numbers,
    }
)


@given(names, names, names, st.integers(0, 1 << 30), places, st.integers(0, (1 << 31) - 1))
def test_a_pull_has_the_bytes_that_its_fields_would_have(
    group, topic, broker, count, place, opaque
):
    queue = MessageQueue(topic, broker, 3)
    common = {"max_messages": count, "suspend_timeout_ms": 15_000}
    requests = PullRequests(group, queue, **common)
    requests.at(1, sys_flag=1)
    pull = requests.at(place["offset"], **{k: v for k, v in place.items() if k != "offset"})
    alone = pull_request(group=group, queue=queue, **common, **place)
    pull.opaque = alone.opaque = opaque
    assert encode_command(pull) == encode_command(alone)
    assert encode_command(pull, binary=True) == encode_command(alone, binary=True)
    assert list(pull.fields.items()) == list(alone.fields.items())
    assert (pull.code, pull.flag, bytes(pull.body)) == (alone.code, 0, b"")


def test_pulls_of_one_queue_are_each_their_own():
    requests = PullRequests("g", QUEUE)
    first, second = requests.at(1 << 40, sys_flag=0), requests.at(7, sys_flag=1, commit_offset=9)
    assert first.fields["queueOffset"] == str(1 << 40)
    assert first.fields is first.fields
    first.opaque, second.opaque = 1, 2
    read = [decode_command(encode_command(one)[4:]) for one in (first, second)]
    assert [one.fields["queueOffset"] for one in read] == [str(1 << 40), "7"]
    assert [one.fields["commitOffset"] for one in read] == ["0", "9"]
    assert [one.opaque for one in read] == [1, 2]


def test_a_pull_is_signed_as_any_other_request():
    keys = Credentials("access", "secret")
    pull = PullRequests("g", QUEUE).at(7, sys_flag=2)
    alone = pull_request(group="g", queue=QUEUE, offset=7, sys_flag=2)
    assert sign(pull, keys) == sign(alone, keys)
    assert type(sign(pull, keys)) is Command
    assert "Signature" in decode_command(encode_command(sign(pull, keys))[4:]).fields


def test_a_name_that_is_not_text_is_refused():
    pull = PullRequests("g\ud800", QUEUE).at(7, sys_flag=2)
    with pytest.raises(ConfigurationError, match="not text"):
        encode_command(pull)


def test_a_command_that_knows_no_quicker_way_is_written_from_its_fields():
    ready, plain = (kind(34, {"a": "b"}, opaque=5) for kind in (ReadyCommand, Command))
    assert encode_command(ready) == encode_command(plain)
