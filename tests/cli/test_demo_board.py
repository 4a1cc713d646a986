"""The demo's judgements: what changed, who owns what, and whether the promises were kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.demo_board import (
    A0,
    A1,
    B0,
    B1,
    IDS,
    QUEUES,
    SKEWED,
    board_of_two,
    everything_to,
    holding,
    kill_of_python_2,
    profile_of,
)
from gimbalmq.cli.demo.board import Board, Offsets
from gimbalmq.cli.demo.changes import Change, Delivery, Holding, Move, judge_change
from gimbalmq.cli.demo.checks import (
    check_all_consumed,
    check_archive,
    check_better,
    check_members_listed,
    check_offsets,
    check_one_owner,
    check_prediction,
    check_profile,
    check_settled,
    check_shares,
)


def test_a_kill_moves_the_queues_of_the_dead_and_is_timed():
    outcome = kill_of_python_2(
        holding(10.4, "python-1", A0, A1, B0),
        holding(10.5, "python-1", *QUEUES),
        deliveries=[Delivery(10.6, "python-1", B0), Delivery(10.9, "python-1", B1)],
    )
    assert outcome.moves == (
        Move(B0, "python-2", "python-1"),
        Move(B1, "python-2", "python-1"),
    )
    assert outcome.unowned_s == pytest.approx(0.5)
    assert outcome.settled_s == pytest.approx(0.5)
    assert outcome.delivered_s == pytest.approx(0.9)
    assert outcome.doubled_s == 0


def test_a_change_is_open_until_every_queue_is_with_its_new_owner():
    outcome = kill_of_python_2(holding(10.4, "python-1", A0, A1, B0), until=12.0)
    assert outcome.settled_s is None
    assert outcome.unowned_s == pytest.approx(2.0)


def test_a_state_that_did_not_last_is_not_settled():
    late = [
        holding(10.5, "python-1", *QUEUES),
        holding(11, "python-1", A0, A1),
        holding(13, "python-1", *QUEUES),
    ]
    assert kill_of_python_2(*late[:2]).settled_s is None
    assert kill_of_python_2(*late).settled_s == pytest.approx(3.0)
    assert kill_of_python_2(*late).unowned_s == pytest.approx(2.5)


def test_deliveries_count_only_from_the_new_owner_and_from_the_begin_on():
    early = Delivery(9.9, "python-1", B0)
    foreign = Delivery(10.2, "python-2", B0)
    settled = holding(10.5, "python-1", *QUEUES)
    one = [early, foreign, Delivery(10.7, "python-1", B1)]
    assert kill_of_python_2(settled, deliveries=one).delivered_s is None


def test_what_is_said_after_the_end_of_the_look_does_not_count():
    outcome = kill_of_python_2(holding(15, "python-1", *QUEUES), until=12.0)
    assert outcome.settled_s is None


def test_a_queue_that_two_members_hold_for_a_while_is_noticed():
    outcome = judge_change(
        Change("join", "python-2", 5.0),
        holdings=[
            holding(1, "python-1", *QUEUES),
            holding(6, "python-2", B0, B1),
            holding(6.25, "python-1", A0, A1),
        ],
        deliveries=[],
        target={A0: "python-1", A1: "python-1", B0: "python-2", B1: "python-2"},
        until=8.0,
    )
    assert outcome.doubled_s == pytest.approx(0.25)
    assert outcome.unowned_s == 0
    assert outcome.settled_s == pytest.approx(1.25)


def test_the_first_member_takes_queues_that_nobody_had():
    outcome = judge_change(
        Change("join", "python-1", 5.0),
        holdings=[holding(6, "python-1", *QUEUES)],
        deliveries=[],
        target=everything_to("python-1"),
        until=8.0,
    )
    assert {move.before for move in outcome.moves} == {None}
    assert outcome.unowned_s == outcome.settled_s == pytest.approx(1.0)


def test_a_change_that_moves_nothing_is_settled_and_delivers_at_once():
    outcome = judge_change(
        Change("leave", "python-2", 5.0),
        holdings=[holding(1, "python-1", *QUEUES), holding(1, "python-2"), holding(5, "python-2")],
        deliveries=[],
        target=everything_to("python-1"),
        until=8.0,
    )
    assert (outcome.moves, outcome.settled_s, outcome.delivered_s) == ((), 0.0, 0.0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100),
            st.sampled_from(["python-1", "python-2"]),
            st.frozensets(st.sampled_from(QUEUES)),
        )
    )
)
def test_time_with_and_without_owner_never_exceeds_the_time_watched(said):
    outcome = judge_change(
        Change("join", "python-2", 50.0),
        holdings=[Holding(float(at), name, queues) for at, name, queues in said],
        deliveries=[],
        target=everything_to("python-2"),
        until=100.0,
    )
    assert 0 <= outcome.unowned_s <= 50
    assert 0 <= outcome.doubled_s <= 50
    assert outcome.settled_s is None or outcome.unowned_s <= outcome.settled_s
    assert all(move.before != move.after for move in outcome.moves)


def test_the_board_knows_who_should_own_what():
    board = board_of_two()
    assert board.target() == {A0: "python-1", A1: "python-1", B0: "python-2", B1: "python-2"}
    board.gone("python-1", "killed", 7.0)
    assert board.target() == everything_to("python-2")


def test_each_change_is_judged_by_the_members_it_had():
    board = board_of_two()
    board.gone("python-2", "left", 10.0)
    board.owns("python-1", QUEUES, 11.0)
    board.end(12.0)
    first, second, third = board.view(12.0).outcomes
    assert [one.change.kind for one in (first, second, third)] == ["join", "join", "leave"]
    assert [one.settled_s for one in (first, second, third)] == [1.0, 1.0, 1.0]
    assert [len(one.moves) for one in (first, second, third)] == [4, 2, 2]


def test_words_of_a_dead_member_do_not_bring_it_back():
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    board.owns("python-2", (B0,), 6.9)
    assert board.view(8.0).members[1].queues == frozenset()


def test_messages_are_counted_once_and_again():
    board = board_of_two()
    board.received("python-1", "early", A0, 6.0)
    for key in ("early", "lost", "twice"):
        board.sent(key, A0)
    board.received("python-1", "twice", A0, 6.1)
    board.received("python-2", "twice", A0, 6.2)
    board.unanswered()
    traffic = board.view(7.0).traffic
    assert (traffic.sent, traffic.consumed, traffic.lost) == (3, 2, 1)
    assert (traffic.deliveries, traffic.duplicates, traffic.unanswered) == (3, 1, 1)


def test_a_lost_message_is_a_finding():
    board = board_of_two()
    board.sent("one", A0)
    check = check_all_consumed(board.view(8.0))
    assert not check.passed
    assert "1 never came" in check.sentence


def test_a_message_more_than_was_acknowledged_needs_a_send_without_answer():
    board = board_of_two()
    board.sent("one", A0)
    for key in ("one", "stray"):
        board.received("python-1", key, A0, 7.0)
    check = check_all_consumed(board.view(8.0))
    assert not check.passed
    assert "1 that nobody sent" in check.sentence
    board.unanswered()
    check = check_all_consumed(board.view(8.0))
    assert check.passed
    assert "1 of them from 1 sends without answer" in check.sentence


def test_no_message_at_all_proves_nothing():
    assert not check_all_consumed(board_of_two().view(8.0)).passed


def test_a_queue_without_or_with_two_owners_is_named():
    board = board_of_two()
    board.owns("python-1", (A0, B0), 7.0)
    check = check_one_owner(board.view(8.0))
    assert not check.passed
    assert "orders/broker-a/1 has none" in check.sentence
    assert "orders/broker-b/0 has python-1 and python-2" in check.sentence


def test_shares_that_are_not_the_strategys_are_a_finding_even_with_one_owner_each():
    board = board_of_two()
    board.owns("python-1", (A0, B0), 7.0)
    board.owns("python-2", (A1, B1), 7.0)
    view = board.view(8.0)
    assert check_one_owner(view).passed
    assert not check_shares(view, board.target()).passed


def test_a_change_that_never_settled_is_named():
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    board.end(60.0)
    check = check_settled(board.view(60.0), limit_s=45)
    assert not check.passed
    assert "python-2 (kill)" in check.sentence
    assert not check_settled(Board(QUEUES).view(0.0), limit_s=45).passed


def test_a_dead_member_that_a_broker_still_lists_is_a_finding():
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    listed = {"broker-a": [IDS["python-1"]], "broker-b": list(IDS.values())}
    check = check_members_listed(board.view(8.0), listed)
    assert not check.passed
    assert "broker-b lists" in check.sentence
    assert "broker-a" not in check.sentence


def test_a_group_that_is_behind_is_a_finding():
    board = board_of_two()
    board.reached(dict.fromkeys(QUEUES, Offsets(1, 1)) | {B1: Offsets(1, 4)})
    assert "orders/broker-b/1 by 3" in check_offsets(board.view(8.0)).sentence
    assert not check_offsets(board_of_two().view(8.0)).passed


@pytest.mark.parametrize(
    ("rows", "unanswered", "passed"),
    [
        ({A0.path: 2, A1.path: 1}, 0, True),
        ({A0.path: 2}, 0, False),
        ({A0.path: 1, A1.path: 2}, 0, False),
        ({A0.path: 3, A1.path: 1}, 0, False),
        ({A0.path: 3, A1.path: 1}, 1, True),
        ({A0.path: 3, A1.path: 2}, 1, False),
        ({A0.path: 2, A1.path: 1, "orders/broker-c/0": 1}, 0, False),
        ({}, 5, False),
    ],
)
def test_spark_must_have_queue_by_queue_what_was_sent(rows, unanswered, passed):
    sent = {A0: 2, A1: 1, B0: 0}
    assert check_archive(rows, rows, sent, unanswered).passed is passed
    assert check_profile(rows, sent, unanswered).passed is passed


def test_a_message_that_is_twice_in_the_files_is_a_finding():
    check = check_archive({A0.path: 3}, {A0.path: 2}, {A0: 2}, 1)
    assert not check.passed
    assert "3 rows of 2 messages" in check.sentence


def test_a_prediction_is_held_against_what_the_members_carry():
    board, profile = board_of_two(), profile_of(SKEWED)
    assert check_prediction(board.view(7.0), profile.loads, profile.spread).passed
    board.owns("python-1", (A0, B0), 7.0)
    board.owns("python-2", (A1, B1), 7.0)
    assert not check_prediction(board.view(8.0), profile.loads, profile.spread).passed
    assert not check_prediction(Board(QUEUES).view(0.0), profile.loads, profile.spread).passed


def test_an_even_load_has_no_better_allocation():
    assert check_better(profile_of(SKEWED).spread, members=2, better="WEIGHTED").passed
    even = profile_of(dict.fromkeys(QUEUES, 10)).spread
    assert not check_better(even, members=2, better="WEIGHTED").passed
    assert not check_better(even, members=9, better="WEIGHTED").passed
