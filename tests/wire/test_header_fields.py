from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.header_fields import (
    encode_fields,
    parse_fields,
    request_fields,
    response_fields,
)

PULL = request_fields(RequestCode.PULL_MESSAGE)


@given(
    st.fixed_dictionaries(
        {
            "queueOffset": st.integers(-(1 << 63), (1 << 63) - 1),
            "queueId": st.integers(-(1 << 31), (1 << 31) - 1),
            "topic": st.text(),
            "lo": st.booleans(),
        }
    )
)
def test_values_survive_as_text(values):
    assert parse_fields(PULL, encode_fields(values)) == values


@pytest.mark.rule("W1.2", "W2.0")
@pytest.mark.parametrize("text", ["", "x", "1.0", "\uff11", "2147483648", "--1", "9" * 30, " 1"])
def test_text_that_is_no_number_counts_as_absent(text):
    assert parse_fields(PULL, {"queueId": text}) == {}


def test_a_long_holds_more_than_an_int():
    fields = {"queueId": "2147483647", "queueOffset": "2147483648", "sysFlag": "+3"}
    assert parse_fields(PULL, fields) == {
        "queueId": 2147483647,
        "queueOffset": 2147483648,
        "sysFlag": 3,
    }


def test_truth_is_the_word_true_in_any_case():
    fields = {"lo": "TRUE", "nsd": "yes", "oway": "false"}
    assert parse_fields(PULL, fields) == {"lo": True, "nsd": False, "oway": False}


def test_unknown_fields_are_left_out():
    assert parse_fields(PULL, {"later": "1", "topic": "t"}) == {"topic": "t"}


def test_a_strict_reader_names_what_is_missing():
    specs = request_fields(RequestCode.GET_MIN_OFFSET)
    assert parse_fields(specs, {"topic": "t", "queueId": "1"}, strict=True)
    with pytest.raises(ProtocolError, match="no usable queueId"):
        parse_fields(specs, {"topic": "t", "queueId": "x"}, strict=True)


def test_a_code_without_header_has_no_fields_and_an_unknown_class_is_refused():
    assert request_fields(RequestCode.GET_BROKER_CLUSTER_INFO) == {}
    with pytest.raises(ConfigurationError, match="no response header"):
        response_fields("Nothing")
