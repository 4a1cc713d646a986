from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.wire.properties import (
    decode_properties,
    encode_properties,
    find_property,
    format_properties,
    parse_properties,
)

plain = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=6
)


@pytest.mark.rule("W4.4a", "W8a")
@given(st.dictionaries(plain, plain, max_size=6))
def test_properties_survive_with_and_without_the_last_mark(properties):
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    assert decode_properties(data.removesuffix(b"\x02")) == properties
    assert parse_properties(format_properties(properties)) == properties


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=24), st.sampled_from(["a", "b", "ab", ""]))
def test_looking_one_up_agrees_with_reading_them_all(text, name):
    found = find_property(text.encode(), name.encode())
    assert (None if found is None else found.decode()) == parse_properties(text).get(name)


@pytest.mark.rule("W7.8", "W4.4b", "W8a")
def test_empty_names_and_values_do_not_exist():
    assert parse_properties("a\x01b\x02c\x01\x02\x01x\x02d\x01e") == {"a": "b", "d": "e"}


def test_of_a_repeated_name_the_last_nonempty_entry_counts():
    data = b"k\x01one\x02k\x01two\x02k\x01\x02"
    assert decode_properties(data) == {"k": "two"}
    assert find_property(data, b"k") == b"two"


def test_a_name_is_not_found_inside_another_or_inside_a_value():
    data = b"XTAGS\x01no\x02note\x01TAGS\x02"
    assert find_property(data, b"TAGS") is None
    assert find_property(b"", b"TAGS") is None


def test_bytes_that_are_no_text_are_replaced_and_the_rest_is_kept():
    assert decode_properties(b"a\x01\xff\x02b\x01c") == {"a": "\ufffd", "b": "c"}
