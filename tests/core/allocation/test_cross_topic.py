from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.allocation import CrossTopic, Snapshot, assign, explain, strategy_named
from gimbalmq.core.measures import measure
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

QUEUES = st.lists(
    st.builds(
        MessageQueue, st.sampled_from(["t1", "t2", "t3"]), st.sampled_from("ab"), st.integers(0, 9)
    ),
    min_size=1,
    max_size=40,
    unique=True,
)
MEMBERS = st.lists(st.text("abc019", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


def shares(queues, members, name="CROSS_TOPIC"):
    return assign(strategy_named(name), Snapshot.of("g", queues, members))


def small_topics(count, each=1):
    return [
        MessageQueue(f"topic-{at:03d}", "broker-a", one)
        for at in range(count)
        for one in range(each)
    ]


def members(count, seed=0):
    return [f"worker-{seed}-{at}" for at in range(count)]


@pytest.mark.rule("B10.14")
def test_pitfall_14_sixty_four_topics_of_one_queue_give_eight_members_eight_each():
    sizes = [len(share) for share in shares(small_topics(64), members(8)).values()]
    assert sizes == [8] * 8
    by_topic = [len(share) for share in shares(small_topics(64), members(8), "AVG").values()]
    assert by_topic == [64, 0, 0, 0, 0, 0, 0, 0]


@given(queues=QUEUES, ids=MEMBERS)
def test_all_topics_together_differ_by_at_most_one(queues, ids):
    result = shares(queues, ids)
    assert sorted(queue for share in result.values() for queue in share) == sorted(queues)
    sizes = [len(share) for share in result.values()]
    assert max(sizes) - min(sizes) <= 1


@given(queues=QUEUES, ids=MEMBERS)
def test_an_explanation_counts_all_topics(queues, ids):
    snapshot = Snapshot.of("g", queues, ids)
    result = assign(CrossTopic(), snapshot)
    for queue in queues:
        why = explain(CrossTopic(), snapshot, queue)
        assert queue in result[why.owner]
        assert why.data["queues"] == len(queues)
        assert "all topics counted together" in why.sentence


@given(ids=MEMBERS, count=st.integers(1, 30))
def test_with_one_topic_it_is_capped_hash(ids, count):
    queues = [MessageQueue("t", "b", at) for at in range(count)]
    assert shares(queues, ids) == shares(queues, ids, "CAPPED_HASH")


@pytest.mark.parametrize("event", ["join", "leave", "topic"])
def test_moves_are_close_to_the_least(event):
    excess = []
    for size in (2, 4, 9, 16, 40, 100):
        for seed in (1, 2, 3):
            topics, ids = small_topics(33, each=4), members(size + 1, seed)
            before = shares(topics[:128], ids[:size])
            after = {
                "join": lambda queues=topics, ids=ids: shares(queues[:128], ids),
                "leave": lambda queues=topics, ids=ids, size=size: shares(
                    queues[:128], ids[1:size]
                ),
                "topic": lambda queues=topics, ids=ids, size=size: shares(queues, ids[:size]),
            }[event]()
            measured = measure(before, after)
            excess.append((measured.moves - measured.least_moves) / 128)
    assert fmean(excess) <= 0.05


def test_it_has_no_options():
    with pytest.raises(AllocationError, match="'CROSS_TOPIC' has no option 'weights'"):
        strategy_named("CROSS_TOPIC", {"weights": {}})
