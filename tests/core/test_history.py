import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import Trigger
from gimbalmq.core.history import (
    Move,
    RebalanceEvent,
    decode_event,
    encode_event,
    event_of,
    moves_of,
)
from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue

Q = "orders/a/0"


def event(at_ms, who, *, took=(), gave=(), why="NOTICE"):
    return RebalanceEvent(at_ms, "billing", who, why, "AVG", 2, tuple(took), tuple(gave))


def test_a_report_becomes_an_event_and_a_line_of_json():
    queue = MessageQueue("orders", "a", 0)
    report = RebalanceReport("billing", Trigger.START, ("ann", "bob"), "AVG", (queue,), (), 3)
    made = event_of(report, "ann", 1234)
    assert made == RebalanceEvent(1234, "billing", "ann", "START", "AVG", 2, (Q,), (), 3)
    assert b"\n" not in encode_event(made)
    assert decode_event(encode_event(made)) == made


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b"\xff", b'{"at_ms":"x"}'])
def test_what_is_no_event_is_refused(line):
    with pytest.raises(ProtocolError, match="not a rebalance event"):
        decode_event(line)


def test_a_queue_that_is_handed_over_has_both_owners_and_a_pause():
    events = [event(1000, "ann", took=[Q]), event(5000, "ann", gave=[Q]),
              event(5300, "bob", took=[Q], why="START")]  # fmt: skip
    assert list(moves_of(events)) == [
        Move(1000, Q, None, "ann", "NOTICE", None),
        Move(5300, Q, "ann", "bob", "START", 0.3),
    ]


def test_an_owner_that_died_said_nothing_but_is_known():
    events = [event(1000, "ann", took=[Q]), event(9000, "bob", took=[Q])]
    assert list(moves_of(events))[1] == Move(9000, Q, "ann", "bob", "NOTICE", None)


def test_a_new_owner_that_is_quicker_than_the_old_one_stays_the_owner():
    events = [event(1000, "ann", took=[Q]), event(2000, "bob", took=[Q]),
              event(2010, "ann", gave=[Q]), event(9000, "cid", took=[Q])]  # fmt: skip
    assert [(one.before, one.after, one.pause_s) for one in moves_of(events)] == [
        (None, "ann", None),
        ("ann", "bob", None),
        ("bob", "cid", None),
    ]


def test_a_queue_that_nobody_took_is_told():
    events = [event(1000, "ann", took=[Q]), event(2000, "ann", gave=[Q], why="STOP")]
    assert list(moves_of(events))[1] == Move(2000, Q, "ann", None, "STOP", None)


def test_a_queue_that_came_back_to_its_owner_did_not_move():
    events = [event(1000, "ann", took=[Q]), event(2000, "ann", gave=[Q]),
              event(2100, "ann", took=[Q])]  # fmt: skip
    assert len(list(moves_of(events))) == 1


def test_at_one_moment_a_queue_is_given_before_it_is_taken():
    events = [event(1000, "bob", took=[Q]), event(1000, "ann", gave=[Q])]
    assert list(moves_of(events)) == [Move(1000, Q, "ann", "bob", "NOTICE", 0.0)]


@given(st.permutations([event(t, who, took=[Q] if t % 2 else [], gave=[] if t % 2 else [Q])
                        for t, who in enumerate("abab", 1)]))  # fmt: skip
def test_the_order_in_which_events_are_read_does_not_matter(events):
    assert list(moves_of(events)) == list(moves_of(sorted(events, key=lambda one: one.at_ms)))
