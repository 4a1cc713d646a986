from __future__ import annotations

import pytest

from gimbalmq.wire.codes import RequestCode


@pytest.mark.rule("B8.3a", "W2.6e")
def test_a_queue_is_granted_to_one_client_id_only(desk):
    assert desk.lock(desk.channel(), "one", 0, 1) == [0, 1]
    assert desk.lock(desk.channel(), "two", 1, 2) == [2]


@pytest.mark.rule("B8.3a")
def test_a_lock_is_renewed_by_its_owner_and_falls_when_it_is_not(desk):
    first, second = desk.channel(), desk.channel()
    desk.lock(first, "one", 0)
    desk.now_ms += 59_000
    assert desk.lock(first, "one", 0) == [0]
    desk.now_ms += 60_000
    assert desk.lock(second, "two", 0) == []
    desk.now_ms += 1
    assert desk.lock(second, "two", 0) == [0]


@pytest.mark.rule("B8.3b", "W2.6e")
def test_unlocking_with_ones_own_id_leaves_the_locks_of_others(desk):
    desk.lock(desk.channel(), "one", 0)
    desk.unlock(desk.channel(), "two", 0)
    assert desk.lock(desk.channel(), "two", 0) == []


@pytest.mark.rule("B8.3b")
def test_unlocking_frees_the_queue_at_once(desk):
    channel = desk.channel()
    desk.lock(channel, "one", 0)
    desk.unlock(channel, "one", 0)
    assert desk.lock(desk.channel(), "two", 0) == [0]


@pytest.mark.rule("B8.3a")
def test_locks_of_different_groups_do_not_meet(desk):
    desk.lock(desk.channel(), "one", 0, group="billing")
    assert desk.lock(desk.channel(), "two", 0, group="audit") == [0]


@pytest.mark.rule("W2.6e")
def test_nothing_about_the_queue_is_checked(desk):
    assert desk.lock(desk.channel(), "one", 99) == [99]
    assert desk.lock(desk.channel(), "one") == []
    desk.unlock(desk.channel(), "one", 98, group="unknown")


@pytest.mark.rule("W2.6e", "W2.0c")
@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_a_lock_without_group_or_client_is_an_error(desk, code):
    assert desk.ask(desk.channel(), code, body=b'{"consumerGroup":"g"}').code == 1
    assert desk.ask(desk.channel(), code).code == 1


@pytest.mark.rule("B8.3c")
def test_locks_go_with_the_connection_that_took_them(desk):
    channel = desk.channel()
    desk.heartbeat(channel, "one", "billing")
    desk.lock(channel, "one", 0)
    desk.lose(channel)
    assert desk.lock(desk.channel(), "two", 0) == [0]


@pytest.mark.rule("B8.3c")
def test_a_client_that_has_another_connection_keeps_its_locks(desk):
    old, new = desk.channel(), desk.channel()
    desk.heartbeat(old, "one", "billing")
    desk.lock(old, "one", 0)
    desk.heartbeat(new, "one", "billing")
    desk.lose(old)
    assert desk.lock(desk.channel(), "two", 0) == []
    # They are the other connection's now, and end with it.
    desk.lose(new)
    assert desk.lock(desk.channel(), "two", 0) == [0]


@pytest.mark.rule("B8.3b", "W8b")
def test_a_foreign_unlock_counts_only_for_an_id_that_is_not_connected(desk):
    owner, other = desk.channel(), desk.channel()
    desk.heartbeat(owner, "one", "billing")
    desk.heartbeat(other, "two", "billing")
    desk.lock(owner, "one", 0)
    desk.unlock(other, "one", 0)
    assert desk.lock(other, "two", 0) == []
    desk.lock(owner, "gone", 1)
    desk.unlock(other, "gone", 1)
    assert desk.lock(other, "two", 1) == [1]


@pytest.mark.rule("B8.3c")
def test_a_faithful_broker_keeps_a_dead_members_locks_and_lets_anybody_unlock(make_desk):
    desk = make_desk(faithful=True)
    owner, other = desk.channel(), desk.channel()
    desk.heartbeat(owner, "one", "billing")
    desk.lock(owner, "one", 0)
    desk.unlock(other, "one", 0)
    assert desk.lock(owner, "one", 0) == [0]
    desk.lose(owner)
    assert desk.lock(other, "two", 0) == []
    desk.now_ms += 60_001
    assert desk.lock(other, "two", 0) == [0]
