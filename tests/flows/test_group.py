import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import TransportError
from gimbalmq.flows.group import list_members
from gimbalmq.wire.bodies import encode_consumer_list
from gimbalmq.wire.codes import RequestCode

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
    with pytest.raises(TransportError, match="no topic of the group has a route"):
        Script().run(list_members([], "billing", 3.0))
