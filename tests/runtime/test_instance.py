import pytest

from gimbalmq.errors import BrokerError, StateError, TransportError
from gimbalmq.flows.route import NameServers, TopicTemplate
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.wire.bodies import ConsumerData, decode_heartbeat, encode_route
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.subscription import parse_tags
from runtime.fake_driver import FakeDriver

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT
LEAVE = RequestCode.UNREGISTER_CLIENT


def route(topic, *brokers, queues=4):
    brokers = brokers or (BrokerSet("broker-a", "c", {0: "a:1"}),)
    return TopicRoute(topic, brokers, tuple(QueueData(b.name, queues, queues, 6) for b in brokers))


class Cluster:
    """A name server `n:1` with routes; every other address is a broker that says yes."""

    def __init__(self, *routes):
        self.routes = {one.topic: one for one in routes}
        self.down = set()
        self.refusing = {}

    def __call__(self, address, command):
        if address in self.down:
            return None
        if address in self.refusing:
            return Command(self.refusing[address], flag=1, remark="no")
        if command.code != ROUTE:
            return Command(0, flag=1)
        known = self.routes.get(command.fields["topic"])
        if known is None:
            return Command(17, flag=1, remark="no route")
        return Command(0, body=encode_route(known), flag=1)


class Member:
    def __init__(self, group, *topics, version_ms=7):
        self.group = group
        self._topics = topics
        self.version_ms = version_ms
        self.routes, self.notices, self.reconnects = [], 0, 0

    def topics(self):
        return self._topics

    def registration(self):
        wanted = tuple(parse_tags(topic, "*", self.version_ms) for topic in self._topics)
        return ConsumerData(self.group, subscriptions=wanted)

    def preflight(self):
        return None

    def on_route(self, route):
        self.routes.append(route)

    def on_notice(self):
        self.notices += 1

    def on_reconnected(self):
        self.reconnects += 1


@pytest.fixture
def cluster():
    return Cluster(route("orders"), route("refunds"))


@pytest.fixture
def driver(cluster):
    return FakeDriver(cluster)


@pytest.fixture
def instance(driver):
    instance = ClientInstance("me@gmq1-AVG", NameServers(["n:1"]), InstanceSettings())
    instance.attach(driver)
    return instance


def join(instance, member):
    outcome = []
    instance.join(member, outcome.append)
    (result,) = outcome
    return result


# ---- joining and leaving -------------------------------------------------------------------------


@pytest.mark.rule("B2.3a")
def test_joining_fetches_routes_then_registers_then_says_so(instance, driver):
    member = Member("billing", "orders")
    order = []
    instance.join(member, lambda error: order.append(("joined", error)))
    assert order == [("joined", None)]
    codes = [command.code for _, command, _ in driver.calls]
    assert codes.index(ROUTE) < codes.index(BEAT)
    assert {one.topic for one in member.routes} == {"orders"}


@pytest.mark.rule("W3.2a")
def test_the_heartbeat_says_who_is_here_and_what_they_want(instance, driver):
    instance.add_producer("shop")
    join(instance, Member("billing", "orders"))
    beat = decode_heartbeat(driver.of(BEAT, "a:1")[-1].body)
    assert beat.client_id == "me@gmq1-AVG"
    (consumer,) = beat.consumers
    assert (consumer.group, [one.topic for one in consumer.subscriptions]) == (
        "billing",
        ["orders"],
    )
    assert set(beat.producers) == {"shop", "CLIENT_INNER_PRODUCER"}


def test_a_topic_without_route_is_waited_for(instance):
    assert join(instance, Member("billing", "orders", "not-yet")) is None


def test_unreachable_name_servers_are_an_error_and_the_group_is_free_again(instance, cluster):
    cluster.down.add("n:1")
    assert isinstance(join(instance, Member("billing", "orders")), TransportError)
    cluster.down.clear()
    assert join(instance, Member("billing", "orders")) is None


def test_a_name_server_that_refuses_is_an_error(instance, cluster):
    cluster.refusing["n:1"] = 1
    assert isinstance(join(instance, Member("billing", "orders")), BrokerError)


def test_a_second_consumer_of_the_group_is_refused_and_the_first_stays(instance):
    first = Member("billing", "orders")
    join(instance, first)
    error = join(instance, Member("billing", "orders"))
    assert isinstance(error, StateError)
    assert "group 'billing' is already consumed by client 'me@gmq1-AVG'" in str(error)
    instance.on_request("a:1", Command(40, {"consumerGroup": "billing"}, flag=2))
    assert first.notices == 1


@pytest.mark.rule("B5.4a")
def test_leaving_unregisters_at_every_broker(instance, driver, cluster):
    brokers = [BrokerSet(f"broker-{name}", "c", {0: f"{name}:1"}) for name in "ab"]
    cluster.routes["orders"] = route("orders", *brokers)
    join(instance, Member("billing", "orders"))
    left = []
    instance.leave("billing", lambda: left.append(True))
    assert left == [True]
    for address in ("a:1", "b:1"):
        (request,) = driver.of(LEAVE, address)
        assert request.fields["consumerGroup"] == "billing"
        assert request.fields["clientID"] == "me@gmq1-AVG"


@pytest.mark.rule("B5.4e")
def test_leaving_ends_also_when_a_broker_is_down_and_waits_no_longer_than_a_call(
    instance, driver, cluster
):
    join(instance, Member("billing", "orders"))
    cluster.down.add("a:1")
    left = []
    instance.leave("billing", lambda: left.append(True))
    assert left == [True]
    assert driver.calls[-1][2] == 3.0


def test_leaving_a_cluster_that_was_never_found_ends_at_once(instance):
    left = []
    instance.leave("billing", lambda: left.append(True))
    assert left == [True]


# ---- timers --------------------------------------------------------------------------------------


@pytest.mark.rule("B2.1a")
def test_routes_are_refreshed_and_heartbeats_sent_every_thirty_seconds(instance, driver):
    join(instance, Member("billing", "orders"))
    driver.calls.clear()
    driver.advance(29.9)
    assert not driver.calls
    driver.advance(0.2)
    assert (len(driver.of(ROUTE)), len(driver.of(BEAT))) == (1, 1)
    driver.advance(60.0)
    assert (len(driver.of(ROUTE)), len(driver.of(BEAT))) == (3, 3)


def test_a_round_that_fails_is_not_the_last_one(instance, driver):
    member = Member("billing", "orders")
    join(instance, member)
    healthy, member.topics = member.topics, lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):  # what runs the timers logs it
        driver.advance(30.1)
    member.topics = healthy
    registration, member.registration = member.registration, lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        driver.advance(0.1)
    member.registration = registration
    driver.calls.clear()
    driver.advance(30.1)
    assert (len(driver.of(ROUTE)), len(driver.of(BEAT))) == (1, 1)


@pytest.mark.rule("B2.1c")
def test_the_intervals_are_options(cluster):
    driver = FakeDriver(cluster)
    settings = InstanceSettings(poll_name_server_interval_s=2.0, heartbeat_broker_interval_s=5.0)
    instance = ClientInstance("me", NameServers(["n:1"]), settings)
    instance.attach(driver)
    join(instance, Member("billing", "orders"))
    driver.calls.clear()
    driver.advance(10.1)
    assert (len(driver.of(ROUTE)), len(driver.of(BEAT))) == (5, 2)


# ---- routes --------------------------------------------------------------------------------------


@pytest.mark.rule("B2.3k")
def test_a_changed_route_is_told_to_those_who_read_the_topic_only(instance, driver, cluster):
    billing, returns = Member("billing", "orders"), Member("returns", "refunds")
    join(instance, billing)
    join(instance, returns)
    billing.routes.clear()
    returns.routes.clear()
    driver.advance(30.1)
    assert (len(billing.routes), len(returns.routes)) == (0, 0), "nothing has changed"
    cluster.routes["orders"] = route("orders", queues=8)
    driver.advance(30.0)
    assert (len(billing.routes), len(returns.routes)) == (1, 0)


def test_a_second_group_hears_of_a_route_that_the_first_has_made_known(instance):
    join(instance, Member("billing", "orders"))
    second = Member("audit", "orders")
    join(instance, second)
    assert {one.topic for one in second.routes} == {"orders"}


@pytest.mark.rule("B7.7d")
def test_a_route_is_kept_when_the_name_server_forgets_the_topic(instance, driver, cluster):
    join(instance, Member("billing", "orders"))
    del cluster.routes["orders"]
    driver.advance(30.1)
    assert instance.routes.route("orders") == route("orders")


@pytest.mark.rule("B7.7d")
def test_the_template_does_not_replace_a_known_route_of_a_topic_that_is_sent_to(
    instance, driver, cluster
):
    elsewhere = BrokerSet("broker-b", "c", {0: "b:1"})
    cluster.routes["TBW102"] = route("TBW102", elsewhere)
    instance.publish_to(route("orders"))
    del cluster.routes["orders"]
    driver.advance(30.1)
    assert instance.routes.route("orders") == route("orders")


def test_a_topic_that_does_not_exist_yet_is_refreshed_from_its_own_template(
    instance, driver, cluster
):
    elsewhere = BrokerSet("broker-b", "c", {0: "b:1"})
    cluster.routes["TBW102"] = route("TBW102", elsewhere)
    cluster.routes["MINE"] = route("MINE", queues=8)
    wanted = TopicRoute(
        "new-topic", route("x").brokers, (QueueData("broker-a", 2, 2, 6),), from_template=True
    )
    instance.publish_to(wanted, TopicTemplate("MINE", 2))
    driver.advance(30.1)
    assert instance.routes.route("new-topic") == wanted
    instance.refresh_route("new-topic")
    assert instance.routes.route("new-topic") == wanted


def test_a_topic_that_is_sent_to_stays_fresh_when_its_reader_has_left(instance, driver):
    join(instance, Member("billing", "orders"))
    instance.publish("orders")
    instance.leave("billing", lambda: None)
    driver.calls.clear()
    driver.advance(30.1)
    assert [command.fields["topic"] for command in driver.of(ROUTE)] == ["orders"]


def test_a_new_producer_is_told_to_the_brokers_that_are_known_at_once(instance, driver):
    join(instance, Member("billing", "orders"))
    driver.calls.clear()
    instance.add_producer("shop")
    (beat,) = (decode_heartbeat(command.body) for command in driver.of(BEAT, "a:1"))
    assert "shop" in beat.producers


def test_readers_are_not_told_of_a_route_that_is_only_the_template(instance, cluster):
    cluster.routes["TBW102"] = route("TBW102")
    member = Member("billing", "new-topic")
    join(instance, member)
    instance.publish_to(TopicRoute("new-topic", route("x").brokers, (), from_template=True))
    instance.refresh_route("new-topic")
    assert member.routes == []


def test_a_new_broker_in_a_route_gets_a_heartbeat_at_once(instance, driver, cluster):
    join(instance, Member("billing", "orders"))
    brokers = [BrokerSet(f"broker-{name}", "c", {0: f"{name}:1"}) for name in "ab"]
    cluster.routes["orders"] = route("orders", *brokers)
    instance.refresh_route("orders")
    assert driver.of(BEAT, "b:1")


@pytest.mark.rule("B2.5a")
def test_the_member_list_is_asked_from_masters_or_a_slave_without_one(instance, cluster):
    cluster.routes["orders"] = route(
        "orders",
        BrokerSet("broker-b", "c", {0: "b:1", 1: "b-slave:1"}),
        BrokerSet("broker-a", "c", {1: "a-slave:1"}),
    )
    join(instance, Member("billing", "orders"))
    asked = instance.routes.any_addresses(["orders", "unknown"])
    assert asked == [("broker-a", "a-slave:1"), ("broker-b", "b:1")]


# ---- heartbeats ----------------------------------------------------------------------------------


def test_slaves_hear_of_consumers_but_not_of_producers_alone(instance, driver, cluster):
    cluster.routes["orders"] = route("orders", BrokerSet("broker-a", "c", {0: "a:1", 1: "s:1"}))
    instance.add_producer("shop")
    instance.publish_to(cluster.routes["orders"])
    assert driver.of(BEAT, "a:1")
    assert not driver.of(BEAT, "s:1")
    join(instance, Member("billing", "orders"))
    assert driver.of(BEAT, "s:1")


def test_the_last_consumer_unregisters_at_slaves_too(instance, driver, cluster):
    cluster.routes["orders"] = route("orders", BrokerSet("broker-a", "c", {0: "a:1", 1: "s:1"}))
    join(instance, Member("billing", "orders"))
    instance.leave("billing", lambda: None)
    assert driver.of(LEAVE, "s:1")


@pytest.mark.rule("B10.20")
def test_pitfall_20_a_broker_that_is_down_does_not_keep_the_others_from_hearing(
    instance, driver, cluster
):
    brokers = [BrokerSet(f"broker-{name}", "c", {0: f"{name}:1"}) for name in "ab"]
    cluster.routes["orders"] = route("orders", *brokers)
    cluster.down.add("a:1")
    assert join(instance, Member("billing", "orders")) is None
    assert driver.of(BEAT, "b:1")


def test_a_pull_names_no_subscription_newer_than_the_broker_confirmed(instance, cluster):
    cluster.down.add("a:1")
    join(instance, Member("billing", "orders", version_ms=7))
    assert instance.registrations.version("a:1", "billing", "orders") == 0
    cluster.down.clear()
    instance.heartbeat()
    assert instance.registrations.version("a:1", "billing", "orders") == 7
    instance.on_disconnected("a:1", TransportError("gone"))
    assert instance.registrations.version("a:1", "billing", "orders") == 0


@pytest.mark.rule("B2.3g")
def test_a_new_connection_registers_and_wakes_the_members(instance, driver):
    member = Member("billing", "orders")
    join(instance, member)
    driver.calls.clear()
    instance.on_connected("a:1")
    assert len(driver.of(BEAT, "a:1")) == 1
    assert member.reconnects == 1
    instance.on_connected("n:1")
    assert len(driver.of(BEAT)) == 1, "a name server is told nothing"


# ---- what brokers ask ----------------------------------------------------------------------------


@pytest.mark.rule("B2.3b", "B2.3j", "B10.17", "W2.6b")
def test_pitfall_17_a_notice_wakes_the_named_group_only(instance):
    billing, returns = Member("billing", "orders"), Member("returns", "refunds")
    join(instance, billing)
    join(instance, returns)
    notice = Command(40, {"consumerGroup": "billing"}, flag=2)
    assert instance.on_request("a:1", notice) is None
    assert (billing.notices, returns.notices) == (1, 0)
    assert instance.on_request("a:1", Command(40, {"consumerGroup": "others"}, flag=2)) is None


@pytest.mark.rule("W1.4d", "W8a")
def test_an_unknown_question_is_answered_with_not_supported(instance):
    answer = instance.on_request("a:1", Command(9999, opaque=5))
    assert (answer.code, answer.opaque, answer.is_response) == (3, 5, True)
    assert instance.on_request("a:1", Command(9999, flag=2)) is None


def test_the_same_warning_is_logged_once_a_minute(instance, driver, caplog):
    for _ in range(5):
        instance.warn("key", "trouble")
    driver.at_s += 61.0
    instance.warn("key", "trouble")
    assert [record.message for record in caplog.records] == ["trouble", "trouble"]
