import logging
import threading

import pytest

from gimbalmq.core.consumer.effects import Consume, Permit
from gimbalmq.core.process_queue import Batch
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.alarms import HungListenerAlarm, OutlivedLockAlarm
from gimbalmq.runtime.running import RunningWork

QUEUE = MessageQueue("orders", "broker-a", 0)


class Message:
    def __init__(self, number):
        self.message_id = f"id-{number}"


def work_of(count=3, *, since=100.0, width=1, thread_id=None, permit=None):
    batch = Batch([Message(number) for number in range(count)], list(range(10, 10 + count)), 1)
    thread_id = threading.get_ident() if thread_id is None else thread_id
    consume = Consume(QUEUE, 1, batch, 0, count, permit=permit)
    return RunningWork(consume, 0, count, since, thread_id, width)


@pytest.fixture
def found():
    return []


@pytest.fixture
def alarm(found):
    return HungListenerAlarm("billing", 10.0, raised=found.append)


@pytest.mark.rule("B10.24")
def test_a_listener_that_takes_too_long_is_reported_with_queue_message_and_stack(
    alarm, found, caplog
):
    work = work_of()
    work.position = 1
    alarm.look([work], 109.9)
    assert found == []
    with caplog.at_level(logging.WARNING):
        alarm.look([work], 111.0)
    (hung,) = found
    assert (hung.queue, hung.queue_offset, hung.message_id) == (QUEUE, 11, "id-1")
    assert hung.seconds == pytest.approx(11.0)
    assert "test_a_listener_that_takes_too_long" in hung.stack
    assert hung.thread == threading.current_thread().name
    (record,) = caplog.records
    assert record.gimbalmq["event"] == "hung listener"
    assert record.gimbalmq["queue_offset"] == 11


def test_a_long_run_over_many_messages_is_no_listener_that_hangs(alarm, found):
    work = work_of()
    parts = work.parts()
    for now in (100.0, 107.0, 114.0):
        next(parts)
        alarm.look([work], now)
    assert found == []
    alarm.look([work], 124.0)
    assert [(hung.queue_offset, hung.seconds) for hung in found] == [(12, 10.0)]


@pytest.mark.rule("B10.24")
def test_it_is_reported_once_and_counted(alarm, found):
    work = work_of()
    for now in (111.0, 120.0, 200.0):
        alarm.look([work], now)
    assert (len(found), alarm.count, alarm.hung_now) == (1, 1, 1)
    alarm.look([], 201.0)
    assert (alarm.count, alarm.hung_now) == (1, 0)


def test_the_next_message_that_hangs_is_reported_too(alarm, found):
    work = work_of()
    alarm.look([work], 111.0)
    work.position, work.since = 1, 111.0
    alarm.look([work], 112.0)
    assert alarm.hung_now == 0
    alarm.look([work], 122.0)
    assert [hung.queue_offset for hung in found] == [10, 11]


def test_a_batch_is_one_report(alarm, found):
    alarm.look([work_of(3, width=8)], 111.0)
    assert [(hung.queue_offset, hung.messages) for hung in found] == [(10, 3)]


def test_a_run_that_has_just_ended_is_not_reported(alarm, found):
    work = work_of()
    work.position = 3
    alarm.look([work], 111.0)
    assert found == []


def test_a_thread_that_has_ended_is_said_to(alarm, found):
    alarm.look([work_of(thread_id=-1)], 111.0)
    assert "ended" in found[0].stack


# ---- outlived locks ------------------------------------------------------------------------------


@pytest.fixture
def lock_alarm(found):
    return OutlivedLockAlarm("billing", look_every_s=1.0, spare_s=1.0, raised=found.append)


def locked(until):
    permit = Permit(until)
    permit.locked_until = until
    return permit


@pytest.mark.rule("B10.11")
def test_a_listener_that_outlives_the_lock_of_its_queue_is_reported_and_counted_once(
    lock_alarm, found, caplog
):
    work = work_of(permit=locked(103.0))
    lock_alarm.look([work], 103.9)
    assert found == [], "nobody can have taken the lock over yet"
    with caplog.at_level(logging.WARNING):
        lock_alarm.look([work], 104.0)
    lock_alarm.look([work], 105.0)
    (outlived,) = found
    assert (outlived.queue, outlived.queue_offset, lock_alarm.count) == (QUEUE, 10, 1)
    assert "test_a_listener_that_outlives" in outlived.stack
    (record,) = caplog.records
    assert record.gimbalmq["event"] == "listener outlived its lock"
    assert "another member may consume the queue beside it" in record.getMessage()


def test_a_lock_that_another_member_has_is_outlived_at_once(lock_alarm, found):
    lock_alarm.look([work_of(permit=locked(0.0))], 100.5)
    assert len(found) == 1


def test_a_queue_that_is_given_up_with_its_lock_in_hand_is_no_alarm(lock_alarm, found):
    permit = locked(110.0)
    permit.valid_until = 0.0
    lock_alarm.look([work_of(permit=permit)], 105.0)
    assert found == []


def test_a_queue_that_needs_no_lock_is_no_alarm(lock_alarm, found):
    lock_alarm.look([work_of()], 500.0)
    assert found == []
