from __future__ import annotations

import pytest

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.pop import (
    PopHandle,
    RecallHandle,
    format_counts,
    format_offsets,
    format_starts,
    parse_counts,
    parse_offsets,
    parse_starts,
    retry_digit,
)


@pytest.mark.rule("W2.7")
def test_a_pop_handle_survives_as_eight_words():
    handle = PopHandle(5, 1_700_000_000_000, 60_000, 3, "1", "broker-a", 1, 7)
    assert str(handle) == "5 1700000000000 60000 3 1 broker-a 1 7"
    assert PopHandle.parse(str(handle)) == handle


@pytest.mark.rule("W2.7")
def test_offset_lists_survive():
    assert parse_starts(format_starts([("0", 1, 13), ("2", 0, 5)])) == {("0", 1): 13, ("2", 0): 5}
    assert parse_offsets(format_offsets([("0", 1, [13, 15])])) == {("0", 1): [13, 15]}
    text = format_counts([("0", 1, None, 3), ("0", 1, 13, 2)])
    assert text == "0 1 3;0 qo1%13 2"
    assert parse_counts(text) == {("0", 1, None): 3, ("0", 1, 13): 2}


def test_kinds_of_topics_have_digits():
    assert [retry_digit(one) for one in ("t", "%RETRY%g_t", "%RETRY%g+t")] == ["0", "1", "2"]


@pytest.mark.rule("W2.3")
def test_a_recall_handle_survives():
    handle = RecallHandle("t", "broker-a", "1700000000000", "0123")
    assert RecallHandle.parse(str(handle)) == handle


@pytest.mark.rule("W2.7")
@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g h", "1 2 3 4 0 b 1 2 3"])
def test_what_is_no_pop_handle_is_refused(text):
    with pytest.raises(ProtocolError, match="eight parts"):
        PopHandle.parse(text)


@pytest.mark.parametrize("parse", [parse_starts, parse_offsets, parse_counts])
@pytest.mark.parametrize("text", ["0 1", "0 1 2 3", "0 x y"])
def test_what_is_no_offset_list_is_refused(parse, text):
    with pytest.raises(ProtocolError, match="no offset list"):
        parse(text)


@pytest.mark.parametrize("parse", [parse_starts, parse_offsets, parse_counts])
def test_an_empty_offset_list_is_empty(parse):
    assert parse("") == {}


@pytest.mark.parametrize("text", ["!", "YWJj", "djIgYSBiIGMgZA=="])
def test_what_is_no_recall_handle_is_refused(text):
    with pytest.raises(ConfigurationError, match="no recall handle"):
        RecallHandle.parse(text)
