import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.batch import BATCH_PROPERTIES, cut_batches
from gimbalmq.flows.outgoing import SendSettings
from gimbalmq.model.message import Message
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.properties import decode_properties, parse_properties


def cut(messages, **settings):
    ids = [f"ID{number}" for number in range(len(messages))]
    return cut_batches(messages, ids, SendSettings(**settings))


@pytest.mark.rule("W2.3c", "W8a")
def test_each_message_keeps_its_own_id_and_the_batch_has_none():
    (batch,) = cut([Message("t", b"a", tags="x"), Message("t", b"b", keys=["k"])])
    entries = decode_batch(batch.body)
    assert batch.message_ids == ("ID0", "ID1")
    assert [entry.body for entry in entries] == [b"a", b"b"]
    assert decode_properties(entries[0].properties) == {
        "UNIQ_KEY": "ID0",
        "WAIT": "true",
        "TAGS": "x",
    }
    assert parse_properties(BATCH_PROPERTIES) == {"WAIT": "true"}


@pytest.mark.rule("W2.3b")
def test_nothing_in_a_batch_is_compressed():
    (batch,) = cut([Message("t", b"x" * 5000)])
    assert decode_batch(batch.body)[0].body == b"x" * 5000


@pytest.mark.rule("B7.8e")
@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=40), limit=st.integers(400, 2000))
def test_batches_keep_the_order_and_stay_within_the_limit(sizes, limit):
    messages = [Message("t", bytes([number % 256]) * size) for number, size in enumerate(sizes)]
    batches = cut(messages, max_message_size=limit)
    assert all(len(batch.body) <= limit for batch in batches)
    entries = [entry for batch in batches for entry in decode_batch(batch.body)]
    assert [entry.body for entry in entries] == [message.body for message in messages]
    ids = [one for batch in batches for one in batch.message_ids]
    assert ids == [decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries]
    # As few as fit in order: no two neighbours would have fitted together.
    joined = [len(one.body) + len(two.body) for one, two in itertools.pairwise(batches)]
    firsts = [len(decode_batch(batch.body)[0].body) + 22 for batch in batches[1:]]
    assert all(total > limit or first <= total for total, first in zip(joined, firsts, strict=True))


@pytest.mark.rule("B7.8e")
@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "no messages"),
        ([Message("t", b"x"), Message("u", b"x")], "one topic: there are 't' and 'u'"),
        ([Message("t", b"x", delay_level=1)], "has a delay"),
        ([Message("t", b"x"), Message("t", b"x", delay_level=0)], "has a delay"),
        ([Message("t", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))], "has a delay"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("t", b"x" * 990)], "takes 10.. bytes of a batch; the limit is 1000"),
        ([Message("t", b"x", properties={"p": "\ud800"})], "lone surrogate"),
        ([Message("t", b"")], "is empty"),
    ],
)
def test_what_a_batch_cannot_carry_is_refused(messages, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        cut(messages, max_message_size=1000)
