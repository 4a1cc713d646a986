import pytest

from flows.script import Script, ok, refusal
from gimbalmq.errors import BrokerError, CallTimeoutError, TopicNotFoundError, TransportError
from gimbalmq.flows.route import (
    NameServers,
    TopicTemplate,
    ask_nameservers,
    fetch_publish_route,
    fetch_route,
)
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import encode_route
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.names import TEMPLATE_TOPIC

UNKNOWN = refusal(17, "No topic route info")


def route(topic, queues=8, read=None):
    return TopicRoute(
        topic,
        (BrokerSet("broker-a", "c", {0: "a:1"}),),
        (QueueData("broker-a", queues if read is None else read, queues, 6),),
    )


def answer(value):
    return ok(encode_route(value))


@pytest.mark.rule("W2.8a")
def test_a_route_is_asked_for_by_topic():
    script = Script(answer(route("orders")))
    assert script.run(fetch_route(NameServers(["n:1"]), "orders")) == route("orders")
    (call,) = script.calls
    assert (call.address, call.timeout_s) == ("n:1", 3.0)
    assert call.command.fields["topic"] == "orders"


@pytest.mark.rule("W1.6b")
def test_standard_json_is_asked_for():
    script = Script(answer(route("orders")))
    script.run(fetch_route(NameServers(["n:1"]), "orders"))
    assert script.calls[0].command.fields["acceptStandardJsonOnly"] == "true"


@pytest.mark.rule("W2.8a")
def test_17_means_that_the_topic_is_unknown():
    with pytest.raises(TopicNotFoundError):
        Script(UNKNOWN).run(fetch_route(NameServers(["n:1"]), "orders"))


# ---- several name servers ------------------------------------------------------------------------


@pytest.mark.rule("B8.7c")
def test_a_name_server_is_used_until_it_fails_then_the_next():
    servers = NameServers(["n:1", "m:1"])
    scripts = [
        Script(answer(route("orders"))),
        Script(TransportError("down"), answer(route("orders"))),
        Script(answer(route("orders"))),
    ]
    for script in scripts:
        script.run(fetch_route(servers, "orders"))
    asked = [[call.address for call in one.calls] for one in scripts]
    assert asked == [["n:1"], ["n:1", "m:1"], ["m:1"]]


@pytest.mark.rule("B8.7c")
def test_the_first_one_to_ask_is_given_and_the_others_follow():
    assert NameServers(["a:1", "b:1", "c:1"], 2).in_turn() == ("c:1", "a:1", "b:1")


def test_clients_that_were_spread_stay_spread_over_a_new_list():
    begun = []
    for start in range(3):
        servers = NameServers(["a:1", "b:1", "c:1"], start)
        assert servers.replace(["c:1", "d:1", "e:1"])
        begun.append(servers.in_turn()[0])
    assert begun == ["c:1", "d:1", "c:1"], "who was with one that stays, stays with it"


def test_a_refusal_is_an_answer_and_is_not_taken_to_the_next():
    script = Script(UNKNOWN)
    with pytest.raises(BrokerError):
        script.run(fetch_route(NameServers(["n:1", "m:1"]), "orders"))


def test_when_none_can_be_asked_the_error_says_why_for_each():
    with pytest.raises(TransportError) as caught:
        Script(TransportError("n is down"), TransportError("m is gone")).run(
            fetch_route(NameServers(["n:1", "m:1"]), "orders")
        )
    assert "no name server could be asked: n is down; m is gone" in str(caught.value)
    assert caught.value.retryable


def test_a_broker_in_the_place_of_a_name_server_is_recognised():
    refused = refusal(3, "request type 105 not supported")
    with pytest.raises(
        BrokerError, match=r"with code 3 .*; give the address of a name server \(of"
    ):
        Script(refused).run(fetch_route(NameServers(["broker:10911"]), "orders"))


def test_a_refusal_of_what_only_newer_name_servers_know_says_nothing_of_brokers():
    request = Command(RequestCode.UPDATE_NAMESRV_CONFIG)
    flow = ask_nameservers(NameServers(["n:1"]), lambda: request, 3.0)
    with pytest.raises(BrokerError) as caught:
        Script(refusal(3, "request type 318 not supported")).run(flow)
    assert "name server" not in str(caught.value)


def test_what_does_not_answer_may_be_no_name_server():
    script = Script(CallTimeoutError("proxy:8081 did not answer within 3.0 s"))
    with pytest.raises(TransportError, match=r"not answer .*; is it well, and a name server"):
        script.run(fetch_route(NameServers(["proxy:8081"]), "orders"))


def test_all_name_servers_together_take_no_longer_than_one():
    script = Script(*(TransportError("down") for _ in range(3)))
    with pytest.raises(TransportError):
        script.run(fetch_route(NameServers(["l:1", "m:1", "n:1"]), "orders", timeout_s=2.0))
    assert [call.timeout_s for call in script.calls] == [1.0, 0.5, 0.5]
    script = Script(answer(route("orders")))
    script.run(fetch_route(NameServers(["n:1"]), "orders", timeout_s=2.0))
    assert [call.timeout_s for call in script.calls] == [2.0]


# ---- the template --------------------------------------------------------------------------------


def test_a_known_topic_needs_no_template():
    script = Script(answer(route("orders")))
    got = script.run(fetch_publish_route(NameServers(["n:1"]), "orders"))
    assert got == route("orders")
    assert not got.from_template


@pytest.mark.rule("B7.7a")
def test_an_unknown_topic_takes_its_route_from_the_template():
    script = Script(UNKNOWN, answer(route(TEMPLATE_TOPIC)))
    got = script.run(fetch_publish_route(NameServers(["n:1"]), "orders"))
    assert [call.command.fields["topic"] for call in script.calls] == ["orders", "TBW102"]
    assert got.topic == "orders"
    assert got.from_template
    assert got.brokers == route(TEMPLATE_TOPIC).brokers


def test_the_template_is_asked_for_in_what_is_left_of_the_time():
    script = Script(UNKNOWN, answer(route(TEMPLATE_TOPIC)), call_takes_s=0.5)
    script.run(fetch_publish_route(NameServers(["n:1"]), "orders", timeout_s=2.0))
    assert [call.timeout_s for call in script.calls] == [2.0, 1.5]


@pytest.mark.rule("B7.7b")
@pytest.mark.parametrize(("template_has", "wanted", "used"), [(8, 4, 4), (2, 4, 2), (8, 16, 8)])
def test_queues_from_the_template_are_limited_both_ways(template_has, wanted, used):
    # Java clamps by the template's read queues.
    template = route(TEMPLATE_TOPIC, queues=9, read=template_has)
    script = Script(UNKNOWN, answer(template))
    wish = TopicTemplate(queues=wanted)
    got = script.run(fetch_publish_route(NameServers(["n:1"]), "orders", template=wish))
    assert [queue.queue_id for queue in got.publish_queues()] == list(range(used))


@pytest.mark.rule("B7.7c")
def test_no_route_at_all_names_the_topic_and_says_what_to_do():
    with pytest.raises(TopicNotFoundError) as caught:
        Script(UNKNOWN, UNKNOWN).run(fetch_publish_route(NameServers(["n:1"]), "orders"))
    assert "topic 'orders' does not exist" in str(caught.value)
    assert "create it first" in str(caught.value)
    assert caught.value.code == 17


def test_an_unreachable_name_server_is_not_taken_for_an_unknown_topic():
    script = Script(TransportError("down"))
    with pytest.raises(TransportError):
        script.run(fetch_publish_route(NameServers(["n:1"]), "orders"))


def test_a_new_list_of_name_servers_goes_on_with_the_one_that_worked():
    servers = NameServers(["a:1", "b:1"])
    servers.worked("b:1")
    assert not servers.replace(["b:1", "a:1"]), "the order says nothing"
    assert servers.replace(["c:1", "b:1"])
    assert servers.in_turn() == ("b:1", "c:1")
    assert servers.replace(["d:1"])
    servers.worked("b:1")  # asked before the change
    assert servers.in_turn() == ("d:1",)
