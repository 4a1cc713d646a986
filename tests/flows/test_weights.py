"""Which published weights count: a weights topic in memory, and members that look at it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.script import ok, refusal
from gimbalmq.errors import ProtocolError, TransportError
from gimbalmq.flows.effects import Call
from gimbalmq.flows.route import NameServers
from gimbalmq.flows.weights import PublishedWeights, read_weights
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.model.weights import WEIGHTS_TOPIC, QueueWeights
from gimbalmq.wire.bodies import encode_route
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.weights import encode_weights


class Topic:
    """One queue: what is stored, and since where."""

    def __init__(self, queues=1):
        self.bodies = []
        self.first = 0
        self.queues = queues
        self.exists = True
        self.reachable = True
        self.asked = []
        #: How many bytes the broker's log has: it goes on when a topic is deleted.
        self.log = 0
        self.places = []

    def make_again(self):
        self.bodies.clear()
        self.places.clear()
        self.first = 0

    def publish(self, topic, weight, version=1):
        document = QueueWeights(version, topic, 0, {f"{topic}/broker-a/0": weight})
        self.store(encode_weights(document))

    def store(self, body):
        self.bodies.append(body)
        self.places.append(self.log)
        self.log += len(body)

    def look(self, known=None):
        """Run the flow against this topic."""
        self.asked.clear()
        known = PublishedWeights() if known is None else known
        flow = read_weights(NameServers(["n:1"]), "billing", WEIGHTS_TOPIC, known, 3.0)
        try:
            effect = next(flow)
            while True:
                assert isinstance(effect, Call)
                answer = self._answer(effect)
                effect = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
        except StopIteration as stop:
            return stop.value

    def _answer(self, effect):
        self.asked.append(RequestCode(effect.command.code))
        match effect.command.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                if not self.exists:
                    return refusal(17, "no route")
                brokers = (BrokerSet("broker-a", "c", {0: "a:1"}),)
                queues = (QueueData("broker-a", self.queues, self.queues, 6),)
                return ok(encode_route(TopicRoute(WEIGHTS_TOPIC, brokers, queues)))
            case RequestCode.GET_MIN_OFFSET:
                return ok(offset=self.first)
            case RequestCode.PULL_MESSAGE:
                return self._pulled(int(effect.command.fields["queueOffset"]))
        raise AssertionError(effect)

    def _pulled(self, offset):
        if not self.reachable:
            return TransportError("gone")
        end = len(self.bodies)
        bounds = {"minOffset": self.first, "maxOffset": end, "suggestWhichBrokerId": 0}
        if not self.first <= offset < end:
            code = 19 if offset == end else 21
            answer = ok(nextBeginOffset=end if offset >= end else self.first, **bounds)
            answer.code = code
            return answer
        until = min(offset + 2, end)  # two at a time
        body = b"".join(
            encode_record(
                topic=WEIGHTS_TOPIC,
                body=self.bodies[at],
                queue_offset=at,
                physical_offset=self.places[at],
                store_timestamp_ms=1_700_000_000_000,
            )
            for at in range(offset, until)
        )
        return ok(body, nextBeginOffset=until, **bounds)


def test_the_last_document_of_each_topic_counts():
    topic = Topic()
    topic.publish("orders", 2.0, version=1)
    topic.publish("bills", 5.0, version=9)
    topic.publish("orders", 3.0, version=2)
    state = topic.look()
    assert state.weights("orders") == {"orders/broker-a/0": 3.0}
    assert (state.version("orders"), state.version("bills")) == (2, 9)
    assert state.weights("other") == {}
    assert state.version("other") is None


def test_a_later_look_takes_one_request_and_reads_what_is_new():
    topic = Topic()
    topic.publish("orders", 2.0)
    state = topic.look()
    assert topic.look(state) == state
    assert topic.asked == [RequestCode.PULL_MESSAGE]
    topic.publish("orders", 4.0, version=2)
    assert topic.look(state).version("orders") == 2


def test_a_topic_that_does_not_exist_has_no_weights():
    topic = Topic()
    topic.exists = False
    assert topic.look() == PublishedWeights()


def test_a_topic_that_cannot_be_reached_is_an_error_not_an_empty_answer():
    topic = Topic()
    topic.publish("orders", 2.0)
    topic.reachable = False
    with pytest.raises(TransportError):
        topic.look()


def test_what_retention_removed_counts_no_more():
    topic = Topic()
    topic.publish("orders", 2.0)
    topic.publish("bills", 2.0)
    state = topic.look()
    topic.first = 1
    assert topic.look(state).documents.keys() == {"bills"}
    assert topic.look().documents.keys() == {"bills"}, "for newcomers, too"


def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_beginning():
    topic = Topic()
    for version in range(1, 6):
        topic.publish("orders", 2.0, version=version)
    state = topic.look()
    topic.make_again()
    topic.publish("orders", 7.0, version=1)
    assert topic.look(state).weights("orders") == {"orders/broker-a/0": 7.0}
    assert topic.look(state).version("orders") == 1


@pytest.mark.parametrize("more", [0, 1, 7])
def test_it_is_read_anew_also_when_it_has_as_many_documents_as_before_or_more(more):
    topic = Topic()
    for name in ("gone", "orders", "bills"):
        topic.publish(name, 2.0, version=5)
    state = topic.look()
    topic.make_again()
    topic.publish("orders", 7.0, version=1)
    for number in range(2 + more):
        topic.publish("bills", 3.0, version=number)
    state = topic.look(state)
    assert state.documents.keys() == {"orders", "bills"}, "what only the old one had is forgotten"
    assert state.weights("orders") == {"orders/broker-a/0": 7.0}
    assert state == topic.look()


def test_when_retention_took_the_last_document_that_was_read_it_goes_on_with_what_is_stored():
    topic = Topic()
    topic.publish("orders", 2.0)
    state = topic.look()
    topic.first = 1
    state = topic.look(state)
    assert (state.documents, state.last) == ({}, None)
    topic.publish("bills", 3.0)
    topic.publish("orders", 4.0, version=2)
    assert topic.look(state).documents.keys() == {"orders", "bills"}
    topic.first = 2
    assert topic.look(state) == topic.look()


def test_a_topic_made_again_is_noticed_also_when_nothing_of_the_old_one_was_stored_any_more():
    topic = Topic()
    topic.publish("orders", 2.0)
    state = topic.look()
    topic.first = 1
    state = topic.look(state)
    topic.make_again()
    topic.publish("bills", 3.0)
    assert topic.look(state).documents.keys() == {"bills"}


def test_documents_that_cannot_be_used_are_passed_over_and_named():
    topic = Topic()
    topic.publish("orders", 2.0, version=1)
    topic.store(b"nonsense")
    topic.publish("orders", -1.0, version=3)
    state = topic.look()
    assert state.version("orders") == 1
    first, second = state.unusable
    assert "@1: not a document of queue weights" in first
    assert "@2: strategy 'WEIGHTED': option weights gives" in second
    assert topic.look(state).unusable == (), "once"


def test_several_queues_have_no_order_and_are_refused():
    with pytest.raises(ProtocolError, match="has 4 queues"):
        Topic(queues=4).look()


STEPS = st.sampled_from(["look", "publish", "trim", "make again"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 2))))
def test_whenever_members_look_in_the_end_they_use_the_same(steps):
    topic = Topic()
    states = [PublishedWeights(), PublishedWeights()]
    for number, (step, which) in enumerate(steps):
        if step == "publish":
            topic.publish(f"topic-{which}", float(number + 1), version=number)
        elif step == "trim":
            topic.first = min(topic.first + which, len(topic.bodies))
        elif step == "make again":
            topic.make_again()
        elif which < 2:
            states[which] = topic.look(states[which])
    newcomer = topic.look()
    assert [topic.look(one).documents for one in states] == [newcomer.documents] * 2
