import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.consumer.effects import QueueMove, RebalanceReport
from gimbalmq.core.consumer.events import Trigger
from gimbalmq.core.history import (
    Move,
    QueueChange,
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


QUEUE = MessageQueue("orders", "a", 0)
REPORT = RebalanceReport(
    "billing",
    Trigger.START,
    ("ann", "bob"),
    "AVG",
    (QUEUE,),
    (),
    3,
    ("new",),
    moves=((QUEUE, "new"),),
)


def pulled(at_ms, who, pause_s, *, acquired=True):
    change = QueueChange(Q, acquired, "new", pause_s)
    return RebalanceEvent(at_ms, "billing", who, "NOTICE", "AVG", 2, moves=(change,))


def test_a_report_becomes_an_event_and_a_line_of_json():
    made = event_of(REPORT, "ann", 1234)
    assert made == RebalanceEvent(
        1234, "billing", "ann", "START", "AVG", 2, (Q,), (), 3, ("new",),
        (QueueChange(Q, True, "new"),),
    )  # fmt: skip
    assert made.decides
    assert b"\n" not in encode_event(made)
    assert decode_event(encode_event(made)) == made


def test_a_report_of_what_is_done_becomes_an_event_of_its_pauses():
    move = QueueMove("billing", QUEUE, True, 0.12345, "new")
    made = event_of(msgspec.structs.replace(REPORT, done=(move,)), "ann", 1300)
    assert (made.acquired, made.revoked, made.decides) == ((), (), False)
    assert made.moves == (QueueChange(Q, True, "new", 0.123),)
    assert decode_event(encode_event(made)) == made


def test_an_event_of_an_earlier_release_is_understood():
    line = (
        b'{"at_ms":1000,"group":"billing","client_id":"ann","trigger":"NOTICE","strategy":"AVG",'
        b'"members":2,"acquired":["orders/a/0"],"revoked":[],"kept":3,"reasons":["new"]}'
    )
    event = decode_event(line)
    assert (event.acquired, event.moves, event.decides) == ((Q,), (), True)


def test_an_earlier_release_understands_the_events_of_this_one():
    """It does not know the new field, and finds neither a queue that came nor one that went."""

    class Before(msgspec.Struct):
        at_ms: int
        acquired: tuple[str, ...] = ()
        revoked: tuple[str, ...] = ()

    old = msgspec.json.decode(encode_event(pulled(1000, "ann", 0.2)), type=Before)
    assert (old.at_ms, old.acquired, old.revoked) == (1000, (), ())


def test_a_pause_lasts_until_the_new_owner_pulls_if_it_has_told_that():
    events = [event(1000, "ann", gave=[Q]), event(1300, "bob", took=[Q]), pulled(1500, "bob", 0.2),
              pulled(1400, "ann", 0.4, acquired=False)]  # fmt: skip
    assert list(moves_of(events)) == [Move(1300, Q, "ann", "bob", "NOTICE", 0.5)]


def test_what_was_pulled_belongs_to_the_move_before_it():
    events = [event(1000, "ann", gave=[Q]), event(1300, "bob", took=[Q]),
              event(2000, "bob", gave=[Q]), event(2500, "bob", took=[Q]),
              pulled(2600, "bob", 0.1)]  # fmt: skip
    assert [move.pause_s for move in moves_of(events)] == [0.3], "it never pulled the first time"


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
