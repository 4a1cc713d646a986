from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ProtocolError
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.record_places import RecordPlaces

#: The body sizes of each buffer's records: none, one size, and several.
sizes_of_bodies = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 300), st.integers(0, 9)).map(lambda both: [both[0]] * both[1]),
        st.lists(st.integers(0, 300), max_size=9),
    ),
    max_size=50,
)


def _buffers(sizes):
    records = [[encode_record(topic="orders", body=b"x" * size) for size in of] for of in sizes]
    return records, [(b"".join(of), "broker-a") for of in records]


def _walked(records):
    """Where the records of the joined buffers start and in which buffer they are, one by one."""
    starts, sources, place = [], [], 0
    for number, of in enumerate(records):
        for record in of:
            starts.append(place)
            sources.append(number)
            place += len(record)
    return starts, sources


@given(sizes_of_bodies)
def test_records_are_found_whether_their_sizes_differ_or_not(sizes):
    records, buffers = _buffers(sizes)
    found = RecordPlaces(buffers)
    assert (found.starts.tolist(), found.sources.tolist()) == _walked(records)
    assert found.head("body_bytes").tolist() == [size for of in sizes for size in of]


def test_two_records_of_another_size_that_fill_the_place_of_regular_ones_are_seen():
    """The length alone does not tell that all records have the size of the first."""
    records, buffers = _buffers([[100, 50, 150], [100, 100, 100]])
    found = RecordPlaces(buffers)
    assert (found.starts.tolist(), found.sources.tolist()) == _walked(records)


@pytest.mark.parametrize("answers", [1, 8, 60])
@pytest.mark.parametrize("vary", [0, 90], ids=["equal sizes", "different sizes"])
@pytest.mark.parametrize(
    ("word", "words"), [(-1, "corrupt"), (0, "corrupt"), (90, "corrupt"), (1 << 30, "cut off")]
)
def test_a_size_that_cannot_be_is_told_with_its_place(answers, vary, word, words):
    chance = random.Random(3)
    records, buffers = _buffers([[80 + chance.randint(0, vary) for _ in range(6)]] * answers)
    spoilt = bytearray(buffers[-1][0])
    place = sum(map(len, records[-1][:4]))
    spoilt[place : place + 4] = np.array([word], ">i4").tobytes()
    buffers[-1] = (bytes(spoilt), "broker-a")
    with pytest.raises(
        ProtocolError, match=rf"at byte {place} of pull answer {answers - 1} .*{words}"
    ):
        RecordPlaces(buffers)


@pytest.mark.parametrize("missing", [1, 5, 100, 168])
def test_a_buffer_that_ends_within_a_record_is_told(missing):
    records, buffers = _buffers([[80] * 3] * 40)
    buffers[7] = (buffers[7][0][:-missing], "broker-a")
    place = 2 * len(records[7][0])
    with pytest.raises(ProtocolError, match=rf"at byte {place} of pull answer 7 is cut off"):
        RecordPlaces(buffers)
