import pytest

from gimbalmq.core.allocation import Snapshot
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

QUEUE = MessageQueue("t", "b", 0)


@pytest.mark.rule("B0a", "B0b")
def test_queues_and_members_are_sorted_as_java_sorts_them():
    queues = [
        MessageQueue("t", "\ufb00", 0),
        MessageQueue("t", "\U0001f600", 10),
        MessageQueue("t", "\U0001f600", 9),
        MessageQueue("s", "z", 0),
    ]
    snapshot = Snapshot.of("g", queues, ["10.0.0.1@9#1", "10.0.0.10@9#1", "10.0.0.1@9#1"])
    assert snapshot.queues == (queues[3], queues[2], queues[1], queues[0])
    assert snapshot.members == ("10.0.0.10@9#1", "10.0.0.1@9#1", "10.0.0.1@9#1")


def test_a_snapshot_cannot_be_changed():
    with pytest.raises(AttributeError):
        Snapshot.of("g", [QUEUE], ["m"]).group = "h"


def test_a_queue_that_is_listed_twice_is_named():
    with pytest.raises(AllocationError, match="queue t/b/0 is listed twice"):
        Snapshot.of("g", [QUEUE, MessageQueue("t", "b", 1), QUEUE], ["m"])


@pytest.mark.rule("B1.0a", "B1.0b")
@pytest.mark.parametrize(
    ("queues", "members", "message"),
    [
        ([], ["m"], "group 'g': no queues"),
        ([QUEUE], [], "group 'g': no members"),
        ([QUEUE], ["m", ""], "group 'g': a member has an empty client id"),
    ],
)
def test_a_snapshot_in_which_nothing_can_be_shared_out_is_refused(queues, members, message):
    with pytest.raises(AllocationError, match=message):
        Snapshot.of("g", queues, members).check()


def test_topics_are_taken_apart_in_order():
    queues = [MessageQueue(topic, "b", at) for topic in ("t2", "t1") for at in (1, 0)]
    parts = Snapshot.of("g", queues, ["m"]).by_topic()
    assert [[queue.path for queue in part.queues] for part in parts] == [
        ["t1/b/0", "t1/b/1"],
        ["t2/b/0", "t2/b/1"],
    ]
    assert {(part.group, part.members) for part in parts} == {("g", ("m",))}
    assert Snapshot.of("g", [], ["m"]).by_topic() == (Snapshot.of("g", [], ["m"]),)


def test_the_position_of_an_unknown_queue_is_an_error():
    with pytest.raises(AllocationError, match="queue t/b/7 is not one of the 1 queues"):
        Snapshot.of("g", [QUEUE], ["m"]).position(MessageQueue("t", "b", 7))
