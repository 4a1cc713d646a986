import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.model.java import hash_code, hash_code_long, sorted_as_java, utf16_key


@pytest.mark.rule("B0c")
def test_client_ids_are_sorted_as_text_and_not_by_address():
    ids = ["10.0.0.2@1#1", "10.0.0.10@1#1", "10.0.0.1@1#1"]
    assert sorted_as_java(ids) == ["10.0.0.10@1#1", "10.0.0.1@1#1", "10.0.0.2@1#1"]


@pytest.mark.rule("B0b")
def test_supplementary_characters_sort_by_their_first_unit():
    assert sorted_as_java(["\ufb00", "\U0001f600"]) == ["\U0001f600", "\ufb00"]


@given(st.lists(st.text(max_size=6)))
def test_sorting_keeps_repeated_names_and_agrees_with_the_key(names):
    assert sorted_as_java(names) == sorted(names, key=utf16_key)


@pytest.mark.rule("W8a")
@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("order-1", -1207111310), ("订单", 1129459)],
)
def test_text_hashes_as_in_java(text, code):
    assert hash_code(text) == code


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_fast_hash_of_ascii_agrees_with_the_rule(text):
    value = 0
    for unit in map(ord, text):
        value = (31 * value + unit) % 2**32
    assert hash_code(text) % 2**32 == value
    assert -(2**31) <= hash_code(text) < 2**31


def test_a_long_hashes_as_in_java():
    assert hash_code_long(12345678901) == -539222985
    assert hash_code_long(-1) == 0
