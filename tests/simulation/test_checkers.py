"""A checker that never fails proves nothing: each is shown a history that breaks its promise."""

from __future__ import annotations

from gimbalmq.testing import checkers
from gimbalmq.testing.sim import Happened, History, Kind

Q = "orders/broker-a/0"


def history(*lines):
    made = History()
    for number, (kind, who, offset, *rest) in enumerate(lines):
        epoch, text = (*rest, 1, f"b{offset}")[:2] if len(rest) < 2 else rest
        made.add(Happened(float(number), kind, who, Q, offset, epoch, text))
    return made


def test_a_message_that_was_acknowledged_and_never_processed_is_lost():
    lost = history((Kind.SENT, "p", 0), (Kind.SENT, "p", 1), (Kind.STARTED, "a", 0),
                   (Kind.ENDED, "a", 0), (Kind.STARTED, "a", 1))  # fmt: skip
    (found,) = checkers.check_loss(lost)
    assert found.startswith("lost: b1")


def test_a_message_that_was_started_twice_is_not_delivered_once():
    twice = history((Kind.STARTED, "a", 0), (Kind.STARTED, "b", 0), (Kind.STARTED, "b", 1))
    assert checkers.check_once(twice) == ["delivered 2 times: b0"]


def test_a_member_that_starts_after_its_successor_is_a_second_owner():
    starts = [(Kind.STARTED, "a", 0), (Kind.STARTED, "b", 1), (Kind.STARTED, "a", 2)]
    (found,) = checkers.check_exclusive(history(*starts))
    assert "two owners: a" in found


def test_a_member_that_acquired_the_queue_again_is_its_owner():
    again = [(Kind.STARTED, "a", 0, 1), (Kind.STARTED, "b", 1, 1), (Kind.STARTED, "a", 2, 2)]
    assert checkers.check_exclusive(history(*again)) == []


def test_a_message_that_overtakes_an_unprocessed_one_is_out_of_order():
    overtaking = history((Kind.STARTED, "a", 0), (Kind.STARTED, "a", 1))
    assert len(checkers.check_order(overtaking, "orders")) == 1
    assert checkers.check_order(overtaking, "other") == []


def test_a_message_may_be_started_again_in_order():
    again = history((Kind.STARTED, "a", 0), (Kind.ENDED, "a", 0), (Kind.STARTED, "b", 0),
                    (Kind.STARTED, "b", 1))  # fmt: skip
    assert checkers.check_order(again, "orders") == []


def test_an_offset_that_moves_back_is_found_unless_its_broker_restarted():
    commits = [(Kind.COMMITTED, "a", 5), (Kind.COMMITTED, "b", 3)]
    (found,) = checkers.check_commits(history(*commits))
    assert "from 5 to 3" in found
    assert "by b" in found
    crashed = [commits[0], (Kind.RESTARTED, "broker-a", -1), commits[1]]
    assert checkers.check_commits(history(*crashed)) == []
    other = [commits[0], (Kind.RESTARTED, "broker-b", -1), commits[1]]
    assert len(checkers.check_commits(history(*other))) == 1


def test_a_queue_needs_exactly_one_owner():
    assert checkers.check_cover({"a": ["q0"], "b": ["q1"]}, ["q0", "q1"]) == []
    assert checkers.check_cover({"a": ["q0"]}, ["q0", "q1"]) == ["no owner: q1"]
    assert checkers.check_cover({"a": ["q0"], "b": ["q0"]}, ["q0"]) == [
        "2 owners: q0 is owned by a, b"
    ]
    assert checkers.check_cover({"a": ["q7"]}, []) == ["unknown queue: a owns q7"]


def test_ownership_that_does_not_come_to_rest_is_slow():
    slow = history((Kind.CHANGED, "a", -1), (Kind.OWNED, "a", -1), (Kind.RELEASED, "a", -1))
    assert checkers.settled_after_s(slow) == 2.0
    assert checkers.check_settled(slow, within_s=2.0) == []
    assert len(checkers.check_settled(slow, within_s=1.9)) == 1
