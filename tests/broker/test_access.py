from __future__ import annotations

import pytest

from gimbalmq.broker.access import AccessControl, Account, load_accounts
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.acl import (
    UNIQUE_KEY_QUERY,
    Credentials,
    sign,
    signature,
    signed_content,
)
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import query_message_request, send_request
from gimbalmq.wire.subscription import parse_tags

pytestmark = pytest.mark.rule("W5.8")

ADMIN = Account(access_key="root", secret_key="s0", admin=True)
SHOP = Account(
    access_key="shop",
    secret_key="s1",
    topics={"orders": "PUB|SUB", "log-*": "SUB", "log-secret": "DENY"},
    groups={"billing": "SUB"},
)


@pytest.fixture
def guarded(make_desk):
    desk = make_desk(access=AccessControl([ADMIN, SHOP]))
    for topic in ("orders", "other", "log-a", "log-secret"):
        fields = {"topic": topic, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG"}
        request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert desk.ask(desk.channel(), signed(request, "root", "s0")).code == 0
    return desk


def signed(request, key="shop", secret="s1"):
    return sign(request, Credentials(key, secret))


def message(topic="orders"):
    return send_request(
        group="g",
        queue=MessageQueue(topic, "broker-a", 0),
        body=b"x",
        properties="",
        born_timestamp_ms=1,
    )


@pytest.mark.rule("W5.8b")
@pytest.mark.parametrize(
    ("request_", "remark"),
    [
        (message(), "username cannot be null."),
        (signed(message(), "who"), "User:who is not found."),
        (signed(message(), "shop", "wrong"), "check signature failed."),
    ],
)
def test_who_has_no_right_key_is_refused_whatever_he_asks(guarded, request_, remark):
    answer = guarded.ask(guarded.channel(), request_)
    assert (answer.code, answer.remark) == (16, remark)


@pytest.mark.rule("W5.8b")
def test_a_changed_body_breaks_the_signature(guarded):
    request = signed(message())
    request.body = b"y"
    assert guarded.ask(guarded.channel(), request).code == 16


def test_rights_are_by_topic_and_group(guarded):
    assert guarded.ask(guarded.channel(), signed(message())).code == 0
    answer = guarded.ask(guarded.channel(), signed(message("other")))
    assert answer.code == 16
    assert answer.remark == (
        "User:shop has no permission to access Topic:other from 127.0.0.1, no matched policies."
    )
    for topic, group, code in (
        ("orders", "billing", 19),
        ("orders", "audit", 16),
        ("log-a", "billing", 19),
        ("log-secret", "billing", 16),
    ):
        request = guarded.pull_command(1 if topic == "orders" else 0, topic, group=group)
        assert guarded.ask(guarded.channel(), signed(request)).code == code


def test_a_client_without_rights_never_becomes_a_member(guarded):
    def heartbeat(group, topic):
        data = bodies.ConsumerData(group, subscriptions=(parse_tags(topic, "*", 1),))
        body = bodies.encode_heartbeat(bodies.HeartbeatData("one", (data,)))
        request = signed(Command(RequestCode.HEART_BEAT, body=body))
        return guarded.ask(guarded.channel(), request).code

    assert heartbeat("audit", "orders") == 16
    assert heartbeat("billing", "other") == 16
    assert heartbeat("billing", "orders") == 0


def test_administration_and_the_unknown_need_an_administrator(guarded):
    for code in (RequestCode.GET_ALL_TOPIC_CONFIG, 31_337):
        assert guarded.ask(guarded.channel(), signed(Command(code))).code == 16
    request = signed(Command(31_337), "root", "s0")
    assert guarded.ask(guarded.channel(), request).code == 3


@pytest.mark.rule("W8b")
def test_a_query_by_key_is_signed_as_every_release_signs_it(guarded):
    request = query_message_request(
        broker="b", topic="orders", key="k", begin_ms=0, end_ms=1, unique=True
    )
    assert guarded.ask(guarded.channel(), signed(request)).code == 22


@pytest.mark.rule("W8b")
@pytest.mark.parametrize(
    ("version", "field_signed", "code"),
    [(399, False, 22), (399, True, 16), (400, True, 22), (400, False, 16)],
)
def test_the_mark_of_a_query_by_unique_key_is_signed_from_4_9_4_on(
    guarded, version, field_signed, code
):
    request = query_message_request(
        broker="b", topic="orders", key="k", begin_ms=0, end_ms=1, unique=True
    )
    request.version = version
    request.fields["AccessKey"] = "shop"
    without = frozenset() if field_signed else frozenset({UNIQUE_KEY_QUERY})
    content = signed_content(request.fields, request.body, without=without)
    request.fields["Signature"] = signature(content, "s1")
    assert guarded.ask(guarded.channel(), request).code == code


def test_rights_that_do_not_exist_are_refused_when_they_are_given():
    with pytest.raises(ConfigurationError, match="READ"):
        Account(access_key="a", secret_key="b", topics={"t": "READ"})


def test_an_account_does_not_show_its_secret():
    assert "s1" not in repr(SHOP)


ACCOUNTS = """
[[accounts]]
access_key = "root"
secret_key = "root-secret"
admin = true

[[accounts]]
access_key = "shop"
secret_key = "shop-secret"
topics = { "orders" = "PUB|SUB" }
groups = { "billing*" = "SUB" }
"""


def test_accounts_are_read_from_a_file(tmp_path):
    path = tmp_path / "accounts.toml"
    path.write_text(ACCOUNTS, "utf-8")
    root, shop = load_accounts(path)
    assert root.admin
    assert shop.may("PUB", "orders", shop.topics)
    assert shop.may("SUB", "billing-2", shop.groups)
    assert not shop.may("PUB", "refunds", shop.topics)
    assert "secret" not in repr(shop)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts = 3", "cannot be used"),
        ("[[accounts]", "cannot be used"),
        ('[[accounts]]\naccess_key = "a"', "secret_key"),
        ('[[accounts]]\naccess_key = "a"\nsecret_key = "b"\ndefault = "ALL"', "PUB, SUB"),
        ("accounts = []", "at least one"),
        ('[[accounts]]\naccess_key = "a"\nsecret_key = "b"\n' * 2, "each access key once"),
    ],
)
def test_an_account_file_that_cannot_be_used_is_named(tmp_path, text, words):
    path = tmp_path / "accounts.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=words):
        load_accounts(path)


def test_an_account_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be used"):
        load_accounts(tmp_path / "none.toml")
