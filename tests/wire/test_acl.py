from __future__ import annotations

import pytest

from gimbalmq.wire.acl import Credentials, sign, signature, signed_content
from gimbalmq.wire.command import Command


@pytest.mark.rule("W5.8", "W7.8")
def test_the_signature_of_the_specification():
    assert signature(b"akTopicTest", "sk") == "bUNDfLxxr02vTlIhHg73lpRhduQ="
    signed = sign(Command(105, {"topic": "TopicTest"}), Credentials("ak", "sk"))
    assert signed.fields == {
        "topic": "TopicTest",
        "AccessKey": "ak",
        "Signature": "bUNDfLxxr02vTlIhHg73lpRhduQ=",
    }


@pytest.mark.rule("W5.8")
def test_values_are_signed_in_the_order_of_names_then_the_body():
    fields = {"b": "2", "a": "1", "Z": "0", "Signature": "no"}
    assert signed_content(fields, memoryview(b"body")) == b"012body"
    assert signed_content(fields, b"", without=frozenset({"a"})) == b"02"


def test_the_command_given_is_left_as_it_is():
    command = Command(105, {"topic": "t"})
    sign(command, Credentials("ak", "sk", "token"))
    assert command.fields == {"topic": "t"}


def test_a_token_is_sent_and_signed():
    signed = sign(Command(105), Credentials("ak", "sk", "token"))
    assert signed.fields["SecurityToken"] == "token"
    assert signed.fields["Signature"] == signature(b"aktoken", "sk")


@pytest.mark.rule("W5.8", "W8a")
def test_a_query_by_key_is_signed_so_that_all_releases_accept_it():
    query = Command(12, {"topic": "t", "_UNIQUE_KEY_QUERY": "true"}, version=479)
    signed = sign(query, Credentials("ak", "sk"))
    assert signed.version == 399
    assert signed.fields["Signature"] == signature(b"akt", "sk")
    assert query.version == 479


def test_the_secret_is_never_shown():
    assert "sk" not in repr(Credentials("ak", "sk", "sktoken"))
