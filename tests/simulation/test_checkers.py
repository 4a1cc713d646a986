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
    twice = history((Kind.STARTED, "a", 0), (Kind.ENDED, "a", 0), (Kind.STARTED, "b", 0),
                    (Kind.STARTED, "b", 1))  # fmt: skip
    assert checkers.check_once(twice) == ["delivered 2 times: b0, and failed 0 times"]


def test_a_message_may_be_started_once_more_for_each_time_that_it_failed():
    failed = [(Kind.STARTED, "a", 0), (Kind.FAILED, "a", 0), (Kind.STARTED, "b", 0)]
    assert checkers.check_once(history(*failed)) == []
    again = [*failed, (Kind.ENDED, "b", 0), (Kind.STARTED, "c", 0)]
    assert checkers.check_once(history(*again)) == ["delivered 3 times: b0, and failed 1 times"]


def test_what_comes_again_after_a_lock_that_was_kept_or_offsets_out_of_turn_is_excused():
    twice = [(Kind.STARTED, "a", 1), (Kind.ENDED, "a", 1), (Kind.STARTED, "b", 1)]
    kept = [(Kind.LOCKED, "a", -1), *twice[:2], (Kind.EXITED, "a", -1), twice[2]]
    assert checkers.check_once(history(*kept)) == []
    given_back = [*kept[:3], (Kind.UNLOCKED, "a", -1), *kept[3:]]
    assert len(checkers.check_once(history(*given_back))) == 1
    reordered = [*twice[:2], (Kind.COMMITTED, "a", 2), (Kind.COMMITTED, "a", 1), twice[2]]
    assert checkers.check_once(history(*reordered)) == []
    in_turn = [*twice[:2], (Kind.COMMITTED, "a", 1), (Kind.COMMITTED, "a", 2), twice[2]]
    assert len(checkers.check_once(history(*in_turn))) == 1


def test_a_member_that_starts_after_its_successor_is_a_second_owner():
    starts = [(Kind.STARTED, "a", 0), (Kind.STARTED, "b", 1), (Kind.STARTED, "a", 2)]
    (found,) = checkers.check_exclusive(history(*starts))
    assert "two owners: a" in found


def test_a_member_that_acquired_the_queue_again_is_its_owner():
    again = [(Kind.STARTED, "a", 0, 1), (Kind.STARTED, "b", 1, 1), (Kind.STARTED, "a", 2, 2)]
    assert checkers.check_exclusive(history(*again)) == []


def test_a_listener_that_runs_while_another_acquisition_starts_is_an_overlap():
    first, second = (Kind.STARTED, "a", 0), (Kind.STARTED, "b", 1)
    (found,) = checkers.check_overlap(history(first, second))
    assert found.startswith("overlap: b")
    assert "while a (acquisition 1) still had @0 since 0.000" in found
    for end in (Kind.ENDED, Kind.FAILED):
        assert checkers.check_overlap(history(first, (end, "a", 0), second)) == []
    assert checkers.check_overlap(history(first, (Kind.EXITED, "a", -1), second)) == []
    other = history(first, (Kind.ENDED, "a", 5), (Kind.EXITED, "c", -1), second)
    assert len(checkers.check_overlap(other)) == 1
    again = history(first, (Kind.STARTED, "a", 1, 2))
    assert len(checkers.check_overlap(again)) == 1, "another acquisition by the same member"
    assert checkers.check_overlap(history(first, (Kind.STARTED, "a", 1))) == []


def test_a_lock_that_is_given_back_while_a_listener_runs_is_not_drained():
    start, unlock = (Kind.STARTED, "a", 0), (Kind.UNLOCKED, "a", -1)
    (found,) = checkers.check_drained(history(start, unlock))
    assert found.startswith("not drained: a")
    assert checkers.check_drained(history(start, (Kind.ENDED, "a", 0), unlock)) == []
    assert checkers.check_drained(history(start, (Kind.EXITED, "a", -1), unlock)) == []
    assert checkers.check_drained(history(start, (Kind.UNLOCKED, "b", -1))) == []


def keyed(*lines):
    """Lines of kind, member and text."""
    return history(*((kind, who, at, 1, text) for at, (kind, who, text) in enumerate(lines)))


def test_a_key_whose_messages_overtake_each_other_is_out_of_order():
    assert checkers.check_key_order(keyed((Kind.STARTED, "a", "k0-0"))) == []
    (found,) = checkers.check_key_order(
        keyed((Kind.STARTED, "a", "k1-0"), (Kind.ENDED, "a", "k1-0"), (Kind.STARTED, "a", "k0-1"))
    )
    assert "k0-0 is not processed" in found
    again = keyed((Kind.STARTED, "a", "k0-0"), (Kind.ENDED, "a", "k0-0"),
                  (Kind.STARTED, "b", "k0-0"), (Kind.STARTED, "b", "k0-1"))  # fmt: skip
    assert checkers.check_key_order(again) == []


def test_messages_of_one_key_that_run_together_are_side_by_side():
    beside = [(Kind.STARTED, "a", 0, 1, "k0-0"), (Kind.STARTED, "a", 1, 1, "k0-1")]
    (found,) = checkers.check_lanes(history(*beside))
    assert "k0-1" in found
    assert "beside k0-0" in found
    done = [beside[0], (Kind.FAILED, "a", 0, 1, "k0-0"), beside[1]]
    assert checkers.check_lanes(history(*done)) == []
    other = [beside[0], (Kind.STARTED, "a", 1, 1, "k1-0")]
    assert checkers.check_lanes(history(*other)) == []


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


def test_what_a_member_stores_only_grows_while_it_has_the_queue():
    less = [(Kind.STORES, "a", 5), (Kind.STORES, "a", 3)]
    (found,) = checkers.check_stores(history(*less))
    assert found.startswith("offset taken back: a (acquisition 1) stores 3")
    for other in ((Kind.STORES, "b", 3), (Kind.STORES, "a", 3, 2), (Kind.STORES, "a", 5)):
        assert checkers.check_stores(history(less[0], other)) == []


def test_an_offset_of_a_queue_that_somebody_else_owns_is_late():
    owned = [(Kind.OWNED, "a", -1), (Kind.OWNED, "b", -1)]
    late = (Kind.STORES, "a", 7)
    (found,) = checkers.check_late_stores(history(*owned, late))
    assert found.startswith("late offset: a (acquisition 1) stores 7")
    assert checkers.check_late_stores(history(owned[0], late, owned[1])) == []
    assert checkers.check_late_stores(history(*owned, (Kind.STORES, "b", 7))) == []
    assert len(checkers.check_late_stores(history(*owned, (Kind.STORES, "b", 7, 2)))) == 1
    given_back = history(*owned, (Kind.UNLOCKED, "b", -1), late)
    assert checkers.check_late_stores(given_back) == []
    restarted = history(*owned, (Kind.RESTARTED, "broker-a", -1), late)
    assert checkers.check_late_stores(restarted) == []


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


def test_more_requests_in_a_second_than_allowed_run_in_circles():
    made = history()
    made.requests["a", "LOCK_BATCH_MQ", 7] = 11
    made.requests["a", "PULL_MESSAGE", 7] = 1_000
    assert checkers.check_load(made, {"LOCK_BATCH_MQ": 11}) == []
    assert checkers.check_load(made, {"LOCK_BATCH_MQ": 10}) == [
        "runs in circles: a sent LOCK_BATCH_MQ 11 times in the second from 7"
    ]
