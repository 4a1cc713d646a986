"""When a member looks for published weights, and what it makes of what it finds."""

import logging

import pytest

from gimbalmq.core.consumer.events import WeightsRead
from gimbalmq.errors import TransportError
from gimbalmq.flows.route import NameServers
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.model.weights import QueueWeights
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.weights_watch import WeightsWatch
from gimbalmq.wire.bodies import encode_route
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.names import Namespace
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.weights import encode_weights
from runtime.fake_driver import FakeDriver


class Stage:
    def __init__(self, namespace=None):
        self.bodies = []
        self.down = False
        self.asked_topics = set()
        self.driver = FakeDriver(self._answer)
        self.instance = ClientInstance("me", NameServers(["n:1"]), InstanceSettings())
        self.instance.attach(self.driver)
        self.read = []
        names = Namespace(namespace)
        self.watch = WeightsWatch(
            self.instance,
            "billing",
            "WEIGHTS",
            names=names,
            every_s=10.0,
            read=self.read.append,
            topics=lambda: [names.wire("orders"), "%RETRY%billing"],
        )

    def begin(self):
        self.driver.spawn(self.watch.first(), self._began)
        self.watch.go_on()
        return self

    @staticmethod
    def _began(result):
        if result is not None:
            raise result

    def publish(self, version, weight):
        weights = {"orders/broker-a/0": weight}
        self.bodies.append(encode_weights(QueueWeights(version, "orders", 0, weights)))

    def _answer(self, address, command):
        if self.down:
            return None
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = command.fields["topic"]
            self.asked_topics.add(topic)
            brokers = (BrokerSet("broker-a", "c", {0: "a:1"}),)
            route = TopicRoute(topic, brokers, (QueueData("broker-a", 1, 1, 6),))
            return Command(0, {}, encode_route(route), flag=1)
        assert command.code == RequestCode.PULL_MESSAGE
        assert command.fields["consumerGroup"] == "billing"
        offset, end = int(command.fields["queueOffset"]), len(self.bodies)
        fields = {"nextBeginOffset": str(end), "minOffset": "0", "maxOffset": str(end)}
        fields["suggestWhichBrokerId"] = "0"
        body = b"".join(
            encode_record(topic="WEIGHTS", body=self.bodies[at], queue_offset=at)
            for at in range(offset, end)
        )
        return Command(0 if body else 19, fields, body, flag=1)


def test_weights_are_read_before_joining_and_changes_are_told_once():
    stage = Stage()
    stage.publish(1, 2.0)
    stage.begin()
    first = WeightsRead({"orders/broker-a/0": 2.0}, {"orders": 1})
    assert stage.read == [first]
    stage.driver.advance(35.0)
    assert stage.read == [first], "nothing new, nothing told"
    stage.publish(2, 3.0)
    stage.driver.advance(10.0)
    assert stage.read[1:] == [WeightsRead({"orders/broker-a/0": 3.0}, {"orders": 2})]


def test_nothing_published_is_told_too_because_shares_can_be_computed_then():
    assert Stage().begin().read == [WeightsRead({}, {})]


def test_a_first_look_that_fails_is_an_error_and_a_later_one_a_warning(caplog):
    stage = Stage()
    stage.down = True
    with pytest.raises(TransportError):
        stage.begin()
    stage.down = False
    stage.publish(1, 2.0)
    stage.begin()
    stage.down = True
    with caplog.at_level(logging.WARNING, "gimbalmq"):
        stage.driver.advance(10.0)
    assert "published weights cannot be read" in caplog.text
    assert len(stage.read) == 1
    stage.down = False
    stage.publish(2, 3.0)
    stage.driver.advance(10.0)
    assert stage.read[-1].versions == {"orders": 2}


def test_a_document_that_cannot_be_used_is_a_warning(caplog):
    stage = Stage()
    stage.bodies.append(b"nonsense")
    with caplog.at_level(logging.WARNING, "gimbalmq"):
        stage.begin()
    assert "these weights are passed over" in caplog.text


def test_in_a_namespace_documents_have_the_names_that_users_give():
    stage = Stage("shop")
    stage.publish(1, 2.0)
    stage.begin()
    assert stage.read == [WeightsRead({"shop%orders/broker-a/0": 2.0}, {"shop%orders": 1})]
    assert "shop%WEIGHTS" in stage.asked_topics


def test_after_the_stop_it_looks_no_more():
    stage = Stage().begin()
    stage.watch.stop()
    before = len(stage.driver.of(RequestCode.PULL_MESSAGE))
    stage.driver.advance(60.0)
    assert len(stage.driver.of(RequestCode.PULL_MESSAGE)) == before
