import pytest

from gimbalmq.core.allocation import AveragelyByCircle, Snapshot
from gimbalmq.model.queue import MessageQueue


def positions(queue_count, members):
    queues = [MessageQueue("t", "b", number) for number in range(queue_count)]
    shares = AveragelyByCircle().allocate(Snapshot.of("g", queues, members))
    return [[queue.queue_id for queue in shares[member]] for member in members]


@pytest.mark.rule("B1.2a", "B11a", "B11b", "B11c", "B11d", "B11e")
@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        pytest.param(4, 2, [[0, 2], [1, 3]], id="what article 002 calls AVG"),
        (4, 3, [[0, 3], [1], [2]]),
        (4, 4, [[0], [1], [2], [3]]),
        (4, 5, [[0], [1], [2], [3], []]),
        (7, 3, [[0, 3, 6], [1, 4], [2, 5]]),
        (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
    ],
)
def test_queues_are_dealt_out_in_turn(queues, members, expected):
    assert positions(queues, [f"c{number}" for number in range(members)]) == expected


@pytest.mark.rule("B1.2a")
def test_each_brokers_queues_are_spread_over_the_members():
    queues = [MessageQueue("t", broker, number) for broker in "ab" for number in range(4)]
    members = ["10.0.0.10@9#1", "10.0.0.1@9#1", "10.0.0.2@9#1"]
    shares = AveragelyByCircle().allocate(Snapshot.of("g", queues, members))
    assert [[f"{q.broker}{q.queue_id}" for q in shares[member]] for member in members] == [
        ["a0", "a3", "b2"],
        ["a1", "b0", "b3"],
        ["a2", "b1"],
    ]


@pytest.mark.rule("B1.2b")
def test_the_second_turn_of_a_repeated_id_belongs_to_nobody():
    assert positions(6, ["A", "A", "B"]) == [[0, 3], [0, 3], [2, 5]]


def test_an_explanation_shows_turn_and_round():
    queues = [MessageQueue("t", "b", number) for number in range(7)]
    why = AveragelyByCircle().explain(Snapshot.of("g", queues, ["c0", "c1", "c2"]), queues[5])
    assert why.owner == "c2"
    assert why.data["round"] == 1
    assert "turn 3 of round 2" in why.sentence
