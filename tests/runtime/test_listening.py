"""Which listener gets a message that comes again, and what those return who should return nothing."""

import math
import time

import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.listening import ListenerSettings, Listening
from gimbalmq.runtime.running import RunningWork
from runtime.test_workers import consume_of

RETRY = MessageQueue("%RETRY%billing", "broker-a", 0)
SIZES = pytest.mark.parametrize("batch_size", [1, 4])


def run(listeners, consume, batch_size=1):
    work = RunningWork(consume, 0, consume.until, time.monotonic(), width=batch_size)
    settings = ListenerSettings(batch_size=batch_size)
    return Listening(listeners.get, settings).run(work, math.inf)


# ---- retry topics --------------------------------------------------------------------------------


@pytest.mark.rule("B5.1e")
def test_a_retried_message_goes_to_the_listener_of_its_own_topic():
    got = {"orders": [], "refunds": []}
    listeners = {topic: messages.append for topic, messages in got.items()}
    run(listeners, consume_of(3, RETRY, topics=["orders", "refunds", "orders"]))
    assert {topic: len(messages) for topic, messages in got.items()} == {"orders": 2, "refunds": 1}


def test_a_batch_of_retried_messages_goes_to_the_listeners_of_their_topics():
    got = {"orders": [], "refunds": []}
    listeners = {topic: batches.append for topic, batches in got.items()}
    run(listeners, consume_of(4, RETRY, topics=["orders", "refunds", "orders", "orders"]), 8)
    assert [one.queue_offset for one in got["orders"][0]] == [0, 2, 3]
    assert [one.queue_offset for one in got["refunds"][0]] == [1]


@SIZES
def test_retried_messages_of_a_topic_nobody_wants_are_tried_again_later(batch_size):
    done = run({}, consume_of(2, RETRY, topics=["gone", "gone"]), batch_size)
    assert done.failures == ((0, 0), (1, 0))


# ---- what listeners return -----------------------------------------------------------------------


@SIZES
def test_a_return_value_means_nothing_which_is_told_once(caplog, batch_size):
    assert run({"orders": lambda _some: False}, consume_of(8), batch_size).failures == ()
    (record,) = (one for one in caplog.records if "means nothing" in one.message)
    assert "a listener returned False" in record.message


@SIZES
def test_a_coroutine_that_nobody_awaits_fails_its_messages(caplog, batch_size):
    async def consume():
        raise AssertionError

    done = run({"orders": lambda _some: consume()}, consume_of(8), batch_size)
    assert done.failures == tuple((position, 0) for position in range(8))
    assert "subscribe the coroutine function itself" in caplog.text
