"""To whom pulls go: the process of a broker set that was advised last, and what it may be told."""

import pytest

from gimbalmq.core.consumer.effects import Pull
from gimbalmq.core.consumer.events import PullAnswered, PullFailed
from gimbalmq.flows.route import NameServers
from gimbalmq.model.java import hash_code
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.pull_calls import PullCalls, PullSettings
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.codes import CompressionType, RequestCode
from gimbalmq.wire.command import response_to
from gimbalmq.wire.compression import compress
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.subscription import parse_tags
from runtime.fake_driver import FakeDriver

QUEUE = MessageQueue("orders", "a", 0)
COMMIT = 1


class Brokers:
    """Answers pulls with nothing new, and advises to read from `advice` next time."""

    def __init__(self):
        self.advice = 0
        self.down = set()

    def __call__(self, address, command):
        if address in self.down:
            return None
        fields = {
            "nextBeginOffset": "7",
            "minOffset": "0",
            "maxOffset": "9",
            "suggestWhichBrokerId": str(self.advice),
        }
        return response_to(command, 19, fields=fields)


@pytest.fixture
def brokers():
    return Brokers()


@pytest.fixture
def driver(brokers):
    return FakeDriver(brokers)


@pytest.fixture
def events():
    return []


@pytest.fixture
def instance(driver):
    instance = ClientInstance("me", NameServers(["n:1"]), InstanceSettings())
    instance.driver = driver
    return instance


@pytest.fixture
def pull(instance, driver, events):
    def with_addresses(addresses):
        instance.routes.learn(
            TopicRoute("orders", (BrokerSet("a", "c", addresses),), (QueueData("a", 1, 1, 6),))
        )
        subscriptions = {"orders": parse_tags("orders", "*", 1)}
        calls = PullCalls(instance, "billing", subscriptions, PullSettings(), events.append)

        def pull(commit_offset=5):
            before = len(driver.calls)
            calls.pull(Pull(QUEUE, 1, 7, commit_offset))
            new = driver.calls[before:]
            return (new[0][0], int(new[0][1].fields["sysFlag"])) if new else None

        return pull

    return with_addresses


BOTH = {0: "master:1", 1: "slave:1"}


@pytest.mark.rule("B4.2i")
def test_a_pull_goes_to_the_process_that_was_advised_last(pull, brokers):
    ask = pull(BOTH)
    brokers.advice = 1
    assert ask()[0] == "master:1"
    brokers.advice = 0
    assert ask()[0] == "slave:1"
    assert ask()[0] == "master:1"


@pytest.mark.rule("B4.2i")
def test_no_offset_is_committed_at_a_slave(pull, brokers, driver):
    ask = pull(BOTH)
    brokers.advice = 1
    address, flags = ask()
    assert (address, flags & COMMIT) == ("master:1", COMMIT)
    address, flags = ask()
    assert (address, flags & COMMIT) == ("slave:1", 0)
    assert driver.of(RequestCode.PULL_MESSAGE)[-1].fields["commitOffset"] == "0"


@pytest.mark.rule("B4.2i")
@pytest.mark.parametrize(
    ("addresses", "advice", "expected"),
    [
        ({0: "master:1", 2: "second:1"}, 1, "second:1"),  # the next id
        ({0: "master:1", 5: "fifth:1"}, 1, "master:1"),  # any other
        ({3: "third:1"}, 0, "third:1"),  # no master
    ],
)
def test_an_unknown_process_is_replaced_by_the_next_or_any(
    pull, brokers, addresses, advice, expected
):
    ask = pull(addresses)
    brokers.advice = advice
    ask()
    assert ask()[0] == expected


def test_a_slave_that_cannot_be_reached_is_not_asked_again(pull, brokers, events):
    ask = pull(BOTH)
    brokers.advice = 1
    ask()
    brokers.down.add("slave:1")
    ask()
    assert isinstance(events[-1], PullFailed)
    assert ask()[0] == "master:1"


def test_without_any_process_the_pull_fails(pull, events):
    assert pull({})() is None
    assert "no address" in events[-1].reason


def test_the_end_of_the_queue_comes_along(pull, events):
    pull(BOTH)()
    assert events == [PullAnswered(QUEUE, 1, PullStatus.NO_NEW_MESSAGE, 7, maximum=9)]


@pytest.mark.rule("W6.4e")
def test_tags_are_compared_again_bodies_unpacked_batches_expanded_and_retry_topics_restored(
    instance, driver, events
):
    records = [
        encode_record(topic="orders", body=b"same hash", properties=b"TAGS\x01BB\x02"),
        encode_record(
            topic="orders",
            body=compress(b"long" * 100, CompressionType.ZLIB),
            queue_offset=1,
            sys_flag=0x301,
            properties=b"TAGS\x01Aa\x02",
        ),
        encode_record(
            topic="orders",
            body=encode_batch(
                [BatchEntry(b"one", b"TAGS\x01Aa"), BatchEntry(b"two", b"TAGS\x01x")]
            ),
            queue_offset=2,
            sys_flag=0xC0,
            properties=b"INNER_NUM\x012",
        ),
        encode_record(
            topic="%RETRY%billing",
            body=b"again",
            queue_offset=4,
            properties=b"RETRY_TOPIC\x01orders\x02TAGS\x01Aa\x02",
        ),
    ]
    assert hash_code("Aa") == hash_code("BB")
    fields = {
        "nextBeginOffset": "5",
        "minOffset": "0",
        "maxOffset": "5",
        "suggestWhichBrokerId": "0",
    }
    driver.answer = lambda _address, request: response_to(
        request, 0, fields=fields, body=b"".join(records)
    )
    instance.routes.learn(
        TopicRoute("orders", (BrokerSet("a", "c", {0: "a:1"}),), (QueueData("a", 1, 1, 6),))
    )
    wanted = {"orders": parse_tags("orders", "Aa", 1)}
    PullCalls(instance, "billing", wanted, PullSettings(), events.append).pull(Pull(QUEUE, 1, 0, 0))
    (event,) = events
    assert [(one.topic, one.body, one.queue_offset) for one in event.messages] == [
        ("orders", b"long" * 100, 1),
        ("orders", b"one", 2),
        ("orders", b"again", 4),
    ]
    assert event.offsets == [1, 2, 4]
    assert event.next_offset == 5, "what was left out is passed over"


@pytest.mark.parametrize("stored", [(5, 6, 7, 8), (5,), (5, 7, 8), (5, 6, 9)])
def test_the_offsets_are_those_of_the_messages_with_gaps_or_without(
    instance, driver, events, stored
):
    fields = {
        "nextBeginOffset": "9",
        "minOffset": "0",
        "maxOffset": "9",
        "suggestWhichBrokerId": "0",
    }
    body = b"".join(encode_record(topic="orders", body=b"x", queue_offset=one) for one in stored)
    driver.answer = lambda _address, request: response_to(request, 0, fields=fields, body=body)
    instance.routes.learn(
        TopicRoute("orders", (BrokerSet("a", "c", {0: "a:1"}),), (QueueData("a", 1, 1, 6),))
    )
    wanted = {"orders": parse_tags("orders", "*", 1)}
    PullCalls(instance, "billing", wanted, PullSettings(), events.append).pull(Pull(QUEUE, 1, 5, 0))
    assert tuple(events[0].offsets) == stored


# ---- another expression --------------------------------------------------------------------------


class Resubscribed:
    """A member whose pull is at the broker, and by whose messages the test decides when."""

    def __init__(self, instance, driver, events):
        self.open = []
        driver.call = lambda _address, command, _timeout_s, done: self.open.append((command, done))
        instance.routes.learn(
            TopicRoute("orders", (BrokerSet("a", "c", {0: "a:1"}),), (QueueData("a", 1, 1, 6),))
        )
        self.wanted = {"orders": parse_tags("orders", "Aa", 10)}
        self.calls = PullCalls(instance, "billing", self.wanted, PullSettings(), events.append)

    def ask(self, offset, epoch=1):
        self.calls.pull(Pull(QUEUE, epoch, offset, 0))

    def answer(self, code, *tags, next_offset):
        command, done = self.open.pop(0)
        fields = {
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": "9",
            "suggestWhichBrokerId": "0",
        }
        body = b"".join(
            encode_record(
                topic="orders",
                body=tag,
                queue_offset=int(command.fields["queueOffset"]) + at,
                properties=b"TAGS\x01%s\x02" % tag,
            )
            for at, tag in enumerate(tags)
        )
        done(response_to(command, code, fields=fields, body=body))

    @property
    def asked(self):
        return [
            (int(one.fields["queueOffset"]), int(one.fields["subVersion"])) for one, _ in self.open
        ]


@pytest.fixture
def member(instance, driver, events):
    return Resubscribed(instance, driver, events)


@pytest.mark.parametrize("code", [0, 19, 20], ids=["found", "no new", "none matches"])
def test_what_an_earlier_expression_brought_or_passed_over_is_asked_for_again(member, events, code):
    """A broker that held the pull answers by the new expression, or by the one that it had."""
    member.ask(3)
    member.wanted["orders"] = parse_tags("orders", "Aa || x", 20)
    member.answer(code, *([b"x"] if code == 0 else []), next_offset=4)
    assert events == []
    assert member.asked == [(3, 20)]
    member.answer(0, b"x", next_offset=4)
    assert [one.body for one in events[0].messages] == [b"x"]


def test_a_broker_that_has_not_heard_of_a_new_expression_must_not_answer_by_the_old(member):
    member.ask(3)
    member.wanted["orders"] = parse_tags("orders", "x", 20)
    member.answer(0, b"Aa", next_offset=4)
    assert member.asked == [(3, 20)], "code 25 from whoever knows version 10 only"
    member.wanted["orders"] = parse_tags("orders", "x", 30)
    member.answer(0, b"x", next_offset=4)
    member.ask(4)
    assert member.asked == [(4, 20)], "a version that wants the same waits for nobody"


def test_a_new_version_of_the_same_expression_costs_no_pull(member, events):
    member.ask(3)
    member.wanted["orders"] = parse_tags("orders", "Aa", 20)
    member.answer(0, b"Aa", next_offset=4)
    assert [one.queue_offset for one in events[0].messages] == [3]
    assert member.asked == []


def test_a_reset_is_heard_of_whatever_the_expression(member, events):
    member.ask(3)
    member.wanted["orders"] = parse_tags("orders", "x", 20)
    member.answer(21, next_offset=1)
    assert events == [PullAnswered(QUEUE, 1, PullStatus.OFFSET_ILLEGAL, 1, maximum=9)]


def test_an_answer_for_an_earlier_acquisition_disturbs_no_later_one(member):
    member.ask(3)
    member.wanted["orders"] = parse_tags("orders", "x", 20)
    member.ask(7, epoch=2)
    member.answer(0, b"x", next_offset=4)
    assert member.asked == [(7, 20)]
