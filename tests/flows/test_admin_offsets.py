import pytest

from flows.script import Script, ok, refusal
from flows.test_admin import CLUSTER, SETS, servers
from flows.test_admin_groups import ANN, OFFLINE, connected
from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    OffsetError,
    StateError,
    TransportError,
)
from gimbalmq.flows.admin_offsets import QueueOffsets, fetch_offsets, queue_address, reset_offsets
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import QueueData, TopicRoute
from gimbalmq.wire.bodies import (
    QueueRange,
    TopicStats,
    encode_consumer_offsets,
    encode_reset_offsets,
    encode_route,
    encode_topic_stats,
)
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.codes import version_ordinal

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))
SMALL = TopicRoute("orders", (SETS["broker-a"],), (QueueData("broker-a", 2, 2, 6),))
ROUTE = ok(encode_route(SMALL))
NONE = refusal(22)


def released(answer, version):
    answer.version = version_ordinal(version)
    return answer


def stats(*ranges):
    queues = {queue: QueueRange(*bounds) for queue, bounds in zip((Q0, Q1), ranges, strict=False)}
    return ok(encode_topic_stats(TopicStats(queues)))


STATS = stats((2, 9), (0, 5))


def reading(*answers):
    script = Script(ROUTE, *answers)
    return script.run(fetch_offsets(servers(), "billing", "orders", 3.0)), script


def view(version, answer=OFFLINE):
    """Both brokers say who is in the group."""
    one = ok(answer.body) if answer.code == 0 else refusal(answer.code)
    other = refusal(206)
    return CLUSTER, released(one, version), released(other, version)


def moving(to, *answers):
    script = Script(ROUTE, *answers)
    return script.run(reset_offsets(servers(), "billing", "orders", to, 3.0)), script


@pytest.mark.rule("W2.9a")
def test_bounds_and_committed_offsets_are_read_and_absence_is_told():
    offsets, script = reading(STATS, ok(offset=7), NONE)
    assert offsets == {Q0: QueueOffsets(2, 9, 7), Q1: QueueOffsets(0, 5, None)}
    assert [one.lag for one in offsets.values()] == [2, None]
    assert script.calls[2].command.fields["setZeroIfNotFound"] == "false"


def test_a_queue_that_is_no_longer_written_is_asked_for_its_bounds():
    offsets, script = reading(stats((2, 9)), ok(offset=1), ok(offset=4), ok(offset=7), NONE)
    assert offsets[Q1] == QueueOffsets(1, 4, None)
    assert [code for _, code in script.asked[2:4]] == [R.GET_MIN_OFFSET, R.GET_MAX_OFFSET]


@pytest.mark.parametrize("stored", [{}, {1: 0}])
def test_the_zero_of_an_old_broker_is_looked_up_in_its_table(stored):
    zero = released(ok(offset=0), "4.9.5"), released(ok(offset=0), "4.9.5")
    table = ok(encode_consumer_offsets({("orders", "billing"): stored}))
    offsets, script = reading(STATS, zero[0], table, zero[1])
    assert (offsets[Q0].committed, offsets[Q1].committed) == (None, stored.get(1))
    assert [code for _, code in script.asked].count(R.GET_ALL_CONSUMER_OFFSET) == 1


def test_the_zero_of_a_new_broker_is_a_zero_and_a_negative_offset_is_none():
    offsets, _ = reading(STATS, released(ok(offset=0), "5.5.0"), ok(offset=-1))
    assert (offsets[Q0].committed, offsets[Q1].committed) == (0, None)


def test_a_failure_is_never_taken_for_an_offset():
    with pytest.raises(BrokerError, match="QUERY_CONSUMER_OFFSET"):
        reading(STATS, refusal(1))
    with pytest.raises(TransportError, match=r"'broker-z'.*is not registered"):
        queue_address(SMALL, MessageQueue("orders", "broker-z", 0))


@pytest.mark.parametrize("version", ["5.1.0", "5.5.0"])
@pytest.mark.parametrize(
    ("to", "searched", "expected"),
    [
        ("earliest", (), (2, 0)),
        ("latest", (), (9, 5)),
        (1234, (ok(offset=4), ok(offset=3)), (4, 3)),
        # A queue that lost all its messages answers 0.
        (1234, (ok(offset=0), ok(offset=7)), (2, 5)),
    ],
)
def test_a_new_broker_moves_the_group_queue_by_queue(version, to, searched, expected):
    done = [ok(encode_reset_offsets({queue: at})) for queue, at in zip((Q0, Q1), expected, strict=True)]  # fmt: skip
    moved, script = moving(to, *view(version, connected(ANN)), STATS, *searched, *done)
    assert moved == dict(zip((Q0, Q1), expected, strict=True))
    assert script.calls[-1].command.code == R.INVOKE_BROKER_TO_RESET_OFFSET
    assert script.calls[-1].command.fields == {
        "topic": "orders",
        "group": "billing",
        "timestamp": "-1",
        "isForce": "true",
        "queueId": "1",
        "offset": str(expected[1]),
        "bname": "broker-a",
    }


def test_given_offsets_move_their_queues_only():
    moved, script = moving({Q1: 3}, *view("5.5.0"), STATS, ok(encode_reset_offsets({Q1: 3})))
    assert moved == {Q1: 3}
    assert len(script.calls) == 6


def test_a_broker_that_moves_elsewhere_is_an_error():
    with pytest.raises(OffsetError, match=r"says 5.*useServerSideResetOffset"):
        moving({Q1: 3}, *view("5.5.0"), STATS, ok(encode_reset_offsets({Q1: 5})))


@pytest.mark.parametrize("version", ["4.9.5", "5.0.0"])
def test_an_old_broker_has_the_offsets_of_an_idle_group_overwritten(version):
    moved, script = moving("earliest", *view(version), STATS, ok(), ok())
    assert moved == {Q0: 2, Q1: 0}
    assert script.asked[-2:] == [("a:1", R.UPDATE_CONSUMER_OFFSET)] * 2


@pytest.mark.parametrize(("to", "timestamp"), [("earliest", "0"), ("latest", "-1"), (77, "77")])
def test_an_old_broker_asks_running_members_to_move_to_a_time(to, timestamp):
    searched = (ok(offset=4), ok(offset=3)) if to == 77 else ()
    answer = ok(encode_reset_offsets({Q0: 3, Q1: 1}))
    moved, script = moving(to, *view("4.9.5", connected(ANN)), STATS, *searched, answer)
    assert moved == {Q0: 3, Q1: 1}
    fields = script.calls[-1].command.fields
    assert (fields["timestamp"], fields["queueId"]) == (timestamp, "-1")


def test_an_old_broker_cannot_move_running_members_to_given_offsets():
    with pytest.raises(StateError, match="stop the members first"):
        moving({Q0: 3}, *view("4.9.5", connected(ANN)), STATS)


def test_what_an_old_broker_refuses_about_running_members_is_told_in_clear_words():
    running = view("4.9.5", connected(ANN))
    with pytest.raises(StateError, match=r"committed an offset in every queue.*not exist"):
        moving("latest", *running, STATS, refusal(1, "THe consumer group <billing> not exist"))
    with pytest.raises(BrokerError, match="INVOKE_BROKER_TO_RESET_OFFSET"):
        moving("latest", *view("4.9.5", connected(ANN)), STATS, refusal(206))


@pytest.mark.parametrize(
    ("to", "error", "complaint"),
    [
        ({}, ConfigurationError, "are empty"),
        ({Q0: 1}, OffsetError, "give 2 to 9"),
        ({Q0: 10}, OffsetError, "give 2 to 9"),
        ({MessageQueue("orders", "broker-a", 7): 1}, OffsetError, "no readable queue"),
    ],
)
def test_offsets_that_are_not_stored_are_refused_before_anything_is_moved(to, error, complaint):
    with pytest.raises(error, match=complaint):
        moving(to, *view("5.5.0"), STATS)
