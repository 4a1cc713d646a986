"""AVG: the tables of the specification and the examples that people find in articles."""

import pytest

from gimbalmq.core.allocation import Averagely, Snapshot, strategy_named
from gimbalmq.model.queue import MessageQueue


def positions(queue_count, members):
    queues = [MessageQueue("t", "b", number) for number in range(queue_count)]
    shares = Averagely().allocate(Snapshot.of("g", queues, members))
    return [[queue.queue_id for queue in shares[member]] for member in members]


def ids(count):
    return [f"c{number}" for number in range(count)]


@pytest.mark.rule("B1.1a", "B1.1b", "B11f")
@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (4, 3, [[0, 1], [2], [3]]),
        (4, 5, [[0], [1], [2], [3], []]),
        (4, 7, [[0], [1], [2], [3], [], [], []]),
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (1, 3, [[0], [], []]),
    ],
)
def test_pages_are_contiguous_and_the_first_members_have_one_more(queues, members, expected):
    assert positions(queues, ids(members)) == expected


@pytest.mark.rule("B11a", "B11b", "B11c", "B11d", "B11e")
@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        pytest.param(
            4,
            2,
            [[0, 1], [2, 3]],
            id="article 002 prints q1,q3 and q2,q4, which is AVG_BY_CIRCLE; Java wins",
        ),
        pytest.param(4, 3, [[0, 1], [2], [3]], id="one remainder queue"),
        pytest.param(4, 4, [[0], [1], [2], [3]], id="one each"),
        pytest.param(4, 5, [[0], [1], [2], [3], []], id="more members than queues"),
        pytest.param(
            8,
            3,
            [[0, 1, 2], [3, 4, 5], [6, 7]],
            id="article 000 says one consumer takes one more; Java: the first n mod c do",
        ),
    ],
)
def test_the_worked_examples_of_the_articles(queues, members, expected):
    assert positions(queues, ids(members)) == expected


@pytest.mark.rule("B0c", "B1.1a")
def test_two_brokers_and_ids_that_sort_as_text():
    queues = [MessageQueue("t", broker, number) for broker in "ab" for number in range(4)]
    members = ["10.0.0.2@9#1", "10.0.0.1@9#1", "10.0.0.10@9#1"]
    shares = Averagely().allocate(Snapshot.of("g", queues, members))
    named = {member: [f"{q.broker}{q.queue_id}" for q in share] for member, share in shares.items()}
    assert named == {
        "10.0.0.10@9#1": ["a0", "a1", "a2"],
        "10.0.0.1@9#1": ["a3", "b0", "b1"],
        "10.0.0.2@9#1": ["b2", "b3"],
    }


@pytest.mark.rule("B1.1c")
def test_the_second_page_of_a_repeated_id_belongs_to_nobody():
    assert positions(6, ["A", "A", "B"]) == [[0, 1], [0, 1], [4, 5]]


def test_an_explanation_shows_the_page():
    queues = [MessageQueue("t", "b", number) for number in range(7)]
    why = strategy_named("AVG").explain(Snapshot.of("g", queues, ids(3)), queues[4])
    assert (why.owner, why.rule) == ("c1", "AVG")
    assert why.data == {
        "queue_position": 4,
        "queues": 7,
        "member_position": 1,
        "members": 3,
        "page_from": 3,
        "page_until": 5,
    }
    assert why.sentence == (
        "t/b/4 is queue 5 of 7 in sorted order and the group has 3 members; under AVG pages are "
        "contiguous, and page 2 is queues 4 to 5, so it belongs to member 2, 'c1'."
    )


def test_an_explanation_says_that_a_repeated_id_leaves_a_hole():
    queues = [MessageQueue("t", "b", number) for number in range(6)]
    why = Averagely().explain(Snapshot.of("g", queues, ["A", "A", "B"]), queues[2])
    assert why.owner is None
    assert why.data["duplicate_of"] == 0
    assert "'A', who is listed twice" in why.sentence
    assert "belongs to nobody" in why.sentence


def test_an_explanation_speaks_of_one_member_in_the_singular():
    queue = MessageQueue("t", "b", 0)
    assert "1 member;" in Averagely().explain(Snapshot.of("g", [queue], ["c"]), queue).sentence
