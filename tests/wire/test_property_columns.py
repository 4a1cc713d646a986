from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.wire.properties import decode_properties, find_property

pa = pytest.importorskip("pyarrow")

from gimbalmq.wire.property_columns import PropertyTable  # noqa: E402 - needs the extra

texts = st.lists(st.text(st.sampled_from("ab\x01\x02"), max_size=16).map(str.encode), max_size=6)
names = st.sampled_from([b"a", b"b", b"ab", b"aba", b"abab", b"ababa", b"abababababa"])


@pytest.mark.rule("W4.4")
@given(texts, names)
def test_a_column_agrees_with_looking_it_up_row_by_row(rows, name):
    column = PropertyTable(pa.array(rows, pa.binary())).column(name)
    found = [find_property(row, name) for row in rows]
    assert column.to_pylist() == [None if one is None else one.decode() for one in found]


@pytest.mark.rule("W4.4")
@given(texts)
def test_the_map_agrees_with_reading_row_by_row(rows):
    column = PropertyTable(pa.array(rows, pa.binary())).map_column()
    column.validate(full=True)
    assert column.to_pylist(maps_as_pydicts="strict") == [decode_properties(row) for row in rows]


def test_names_that_only_look_alike_are_kept():
    # Equal in length and in every byte that the quick comparison looks at.
    row = b"abcdefghij\x011\x02aXcdefghij\x012\x02abcdefghij\x013\x02"
    [properties] = PropertyTable(pa.array([row])).map_column().to_pylist(maps_as_pydicts="strict")
    assert properties == {"aXcdefghij": "2", "abcdefghij": "3"}
