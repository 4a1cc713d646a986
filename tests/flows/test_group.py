import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import ConfigurationError, TransportError
from gimbalmq.flows.group import ask_absent, check_subscriptions, list_everywhere, list_members
from gimbalmq.wire.absence import ABSENT_PROPERTY, encode_absent
from gimbalmq.wire.bodies import RunningInfo, encode_consumer_list, encode_running_info
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.subscription import sql_subscription

BROKERS = [("broker-a", "a:1"), ("broker-b", "b:1")]


def listing(*members):
    return ok(encode_consumer_list(members))


def test_the_first_broker_that_answers_lists_the_members():
    script = Script(listing("x", "y"))
    assert script.run(list_members(BROKERS, "billing", 3.0)) == ("x", "y")
    (asked,) = script.calls
    assert asked.command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP
    assert asked.command.fields == {"consumerGroup": "billing", "bname": "broker-a"}


@pytest.mark.parametrize("failure", [TransportError("gone"), refusal(1, "no such group")])
def test_the_next_broker_is_asked_when_one_fails(failure):
    script = Script(failure, listing("x"))
    assert script.run(list_members(BROKERS, "billing", 3.0)) == ("x",)
    assert [call.address for call in script.calls] == ["a:1", "b:1"]


@pytest.mark.rule("B2.5c")
def test_when_all_fail_there_is_an_error_and_no_empty_list():
    with pytest.raises(TransportError) as caught:
        Script(TransportError("gone"), refusal(1, "no group")).run(
            list_members(BROKERS, "billing", 3.0)
        )
    assert "group 'billing'" in str(caught.value)
    assert "broker-a: gone" in str(caught.value)
    assert "no group" in str(caught.value)


def test_without_a_route_the_error_says_so():
    with pytest.raises(
        TransportError, match=r"no topic of the group has a route; look at .*topic list"
    ):
        Script().run(list_members([], "billing", 3.0))


def test_every_broker_says_whom_it_lists():
    script = Script(listing("x", "y"), listing("y", "y"))
    assert script.run(list_everywhere(BROKERS, "billing", 3.0)) == {
        "a:1": frozenset({"x", "y"}),
        "b:1": frozenset({"y"}),
    }


@pytest.mark.parametrize("failure", [TransportError("gone"), refusal(1, "no such group")])
def test_when_one_broker_cannot_be_asked_it_is_not_known_who_is_there(failure):
    with pytest.raises(TransportError, match="broker-b"):
        Script(listing("x"), failure).run(list_everywhere(BROKERS, "billing", 3.0))


def test_without_brokers_it_is_not_known_who_is_there():
    with pytest.raises(TransportError, match="no broker is known"):
        Script().run(list_everywhere([], "billing", 3.0))


# ---- who is gone ---------------------------------------------------------------------------------


def info(absent=None):
    properties = {} if absent is None else {ABSENT_PROPERTY: encode_absent(absent)}
    return ok(encode_running_info(RunningInfo(properties, (), {})))


def test_the_first_member_that_knows_says_who_is_gone():
    script = Script(info(), refusal(1, "not online"), info({"dan": 1.5}))
    flow = ask_absent(BROKERS, "billing", ["ann", "bob", "cid"], 3.0)
    assert script.run(flow) == {"dan": 1.5}
    assert [(call.address, call.command.fields["clientId"]) for call in script.calls] == [
        ("a:1", "ann"),
        ("a:1", "bob"),
        ("b:1", "bob"),
    ]


def test_nobody_who_answers_or_knows_is_no_error():
    broken = ok(encode_running_info(RunningInfo({ABSENT_PROPERTY: "[]"}, (), {})))
    script = Script(TransportError("gone"), TransportError("gone"), broken, info())
    assert script.run(ask_absent(BROKERS, "billing", ["ann", "bob"], 3.0)) is None


# ---- SQL expressions -----------------------------------------------------------------------------

SQL = sql_subscription("orders", "amount > 3", 1)


def test_each_broker_of_the_topic_is_asked_once_about_an_expression():
    script = Script(ok(), ok())
    flow = check_subscriptions({"orders": BROKERS}, "me", "billing", [SQL], 3.0)
    assert script.run(flow) is None
    assert [(call.address, call.command.code) for call in script.calls] == [
        ("a:1", RequestCode.CHECK_CLIENT_CONFIG),
        ("b:1", RequestCode.CHECK_CLIENT_CONFIG),
    ]


def test_a_refused_expression_is_an_error_with_the_brokers_words():
    script = Script(refusal(23, "unexpected token\nat Parser"))
    flow = check_subscriptions({"orders": BROKERS}, "me", "billing", [SQL], 3.0)
    with pytest.raises(ConfigurationError, match=r"broker-a .*amount > 3.*unexpected token"):
        script.run(flow)
