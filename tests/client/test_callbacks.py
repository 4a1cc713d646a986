"""What users hand over to be called, and queues and tags, are refused when they cannot be used."""

import functools
from unittest.mock import Mock

import pytest

from gimbalmq import LitePullConsumer, MessageQueue, Producer, PullConsumer, PushConsumer, aio
from gimbalmq.client.callbacks import check_callback
from gimbalmq.errors import ConfigurationError, StateError

BOTH = [PushConsumer, aio.PushConsumer]


def consumer_of(kind, **options):
    return kind("billing", nameserver="n:1", **options)


class Shop:
    def bill(self, message):
        """A listener as a method."""

    def __call__(self, message):
        """A listener as an object."""


@pytest.mark.parametrize(
    "listener",
    [
        print,
        lambda message: None,
        lambda *messages: None,
        lambda message, log=None: None,
        functools.partial(lambda log, message: None, "log"),
        Shop().bill,
        Shop(),
        Mock(),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_whatever_can_be_called_with_a_message_is_a_listener(kind, listener):
    assert consumer_of(kind).subscribe("orders", listener=listener) is listener


async def nothing_wanted():
    """A coroutine function that takes no message."""


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (3, "^listener is 3: give a function$"),
        (lambda: None, r"^listener .*<lambda>\(\) cannot be called .*: it gets one message"),
        (lambda message, log: None, r"\(message, log\) cannot be called \(missing a required"),
        (nothing_wanted, r"^listener nothing_wanted\(\) cannot be called"),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_what_cannot_be_called_with_a_message_is_refused_before_a_message_fails(
    kind, listener, words
):
    consumer = consumer_of(kind)
    with pytest.raises(ConfigurationError, match=words):
        consumer.subscribe("orders", listener=listener)
    with pytest.raises(ConfigurationError, match=words):
        consumer.subscribe("orders")(listener)


def test_a_listener_of_batches_is_told_that_it_gets_a_list():
    with pytest.raises(ConfigurationError, match="gets a list of messages, as batch_size is above"):
        consumer_of(PushConsumer, batch_size=32).subscribe("orders", listener=lambda: None)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("method", ["on_rebalance", "on_moved", "on_hung", "before", "after"])
@pytest.mark.parametrize("callback", [3, lambda: None])
def test_other_callbacks_are_refused_too(kind, method, callback):
    with pytest.raises(ConfigurationError, match=r"is 3: give a function|it gets "):
        getattr(consumer_of(kind), method)(callback)


def test_a_callback_of_several_arguments_is_told_all_of_them():
    consumer = consumer_of(PullConsumer)
    with pytest.raises(ConfigurationError, match=r"it gets the topic and its queues$"):
        consumer.on_queues_changed("orders", lambda topic: None)
    with pytest.raises(ConfigurationError, match=r"^task .*it gets a queue$"):
        consumer.schedule("orders", lambda: None)
    with pytest.raises(ConfigurationError, match=r"^check .*it gets a message$"):
        Producer("shop", nameserver="n:1", check=lambda: None)


def test_what_does_not_tell_its_arguments_is_let_in():
    check_callback("listener", dict.fromkeys, "message")


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("arguments", [(print,), (print, "paid")])
def test_a_listener_in_the_place_of_tags_is_told_where_it_goes(kind, arguments):
    with pytest.raises(ConfigurationError, match=r"topic 'orders': .*print.* as listener="):
        consumer_of(kind).subscribe("orders", *arguments)


@pytest.mark.parametrize("kind", [*BOTH, LitePullConsumer, PullConsumer])
@pytest.mark.parametrize("options", [{"tags": ["paid"]}, {"sql": 5}])
def test_tags_and_sql_are_text(kind, options):
    with pytest.raises(
        ConfigurationError, match=r"topic 'orders' (are \['paid'\]|is 5): give text"
    ):
        consumer_of(kind).subscribe("orders", **options)


@pytest.mark.parametrize("topic", [print, None, 3])
def test_a_decorator_without_a_topic_says_so(topic):
    with pytest.raises(ConfigurationError, match="is no topic name: use 1 to 127"):
        consumer_of(PushConsumer).subscribe(topic)


@pytest.mark.parametrize("namespace", [None, "shop"])
@pytest.mark.parametrize("method", ["pause", "resume"])
def test_what_is_no_queue_is_not_paused_without_a_word(method, namespace):
    consumer = consumer_of(PushConsumer, namespace=namespace)
    with pytest.raises(ConfigurationError, match="'o' is no queue: give a MessageQueue"):
        getattr(consumer, method)("orders")
    with pytest.raises(ConfigurationError, match="'orders/broker-a/0' is no queue"):
        consumer_of(LitePullConsumer).assign([MessageQueue("orders", "broker-a", 0).path])


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (PushConsumer, "use it in a with statement, or call start"),
        (aio.PushConsumer, "use it in an async with statement, or await start"),
    ],
)
def test_a_consumer_that_was_not_started_says_how(kind, advice):
    with pytest.raises(StateError, match=f"is created, not running: {advice}"):
        consumer_of(kind).assignment()
