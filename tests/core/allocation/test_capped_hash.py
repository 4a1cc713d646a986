"""CAPPED_HASH against a reference that sorts every pair, and what holds for every group."""

from __future__ import annotations

import hashlib
import random
from fractions import Fraction
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.allocation import CappedHash, Snapshot, assign, strategy_named, strategy_names
from gimbalmq.core.allocation.capped_hash import Scores, Seats, level_seats, place
from gimbalmq.core.identity import Agreement, agreed_strategy, member_id, stem_of
from gimbalmq.core.measures import measure
from gimbalmq.errors import AllocationError
from gimbalmq.model.java import utf16_key
from gimbalmq.model.queue import MessageQueue

OURS = ("CAPPED_HASH", "CROSS_TOPIC", "WEIGHTED", "ZONED", "ZONED-WEIGHTED")

QUEUES = st.lists(
    st.builds(
        MessageQueue, st.just("t"), st.sampled_from(["a", "b", "\ufb00"]), st.integers(0, 20)
    ),
    min_size=1,
    max_size=40,
    unique=True,
)
IDS = st.text("ab-@#.019é\U0001f600\ufb00\ud800", min_size=1, max_size=6)
MEMBERS = st.lists(IDS, min_size=1, max_size=12, unique=True)

#: Members of different versions have to agree: these lines must never change.
PINNED = {
    "ann": ["t/broker-0/0", "t/broker-1/1", "t/broker-1/2"],
    "bob": ["t/broker-0/2", "t/broker-0/3", "t/broker-1/0"],
    "cid": ["t/broker-0/1", "t/broker-1/3"],
}


def number(text):
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


def score(queue, member):
    product = number(f"{queue.topic}\0{queue.broker}\0{queue.queue_id}") * number(stem_of(member))
    return (product >> 32) % 2**64


def reference(queues, members):
    """Every pair, best first; slow, and in as few words as the rule itself."""
    queues = sorted(queues)
    members = sorted(set(members), key=utf16_key)
    pairs = sorted(
        (-score(queue, member), q, m)
        for q, queue in enumerate(queues)
        for m, member in enumerate(members)
    )
    size, extra = divmod(len(queues), len(members))
    owner = {}
    load = [0] * len(members)
    for _, q, m in pairs:
        room = load[m] < size or (load[m] == size and extra > 0)
        if q not in owner and room:
            extra -= load[m] == size
            load[m] += 1
            owner[q] = m
    return {
        member: tuple(queue for q, queue in enumerate(queues) if owner[q] == m)
        for m, member in enumerate(members)
    }


def shares(queues, members, name="CAPPED_HASH", **options):
    return assign(strategy_named(name, options), Snapshot.of("g", queues, members))


def topic(count, name="t"):
    return [MessageQueue(name, f"broker-{at % 2}", at // 2) for at in range(count)]


def group(size, seed=0):
    chance = random.Random(seed)
    return [f"10.0.0.{at}@{chance.getrandbits(40)}" for at in range(size)]


@given(queues=QUEUES, members=MEMBERS)
def test_it_equals_serving_all_pairs_from_the_highest_score_down(queues, members):
    assert shares(queues, members) == reference(queues, members)


@pytest.mark.rule("B10.15")
@given(queues=QUEUES, members=MEMBERS)
def test_pitfall_15_every_queue_has_one_owner_and_shares_differ_by_at_most_one(queues, members):
    result = shares(queues, members)
    assert sorted(queue for share in result.values() for queue in share) == sorted(queues)
    sizes = [len(share) for share in result.values()]
    assert max(sizes) - min(sizes) <= 1


@given(queues=QUEUES, members=MEMBERS, seed=st.integers())
def test_the_order_in_which_things_are_given_does_not_matter(queues, members, seed):
    chance = random.Random(seed)
    shuffled = chance.sample(queues, len(queues)), chance.sample(members, len(members))
    assert shares(*shuffled) == shares(queues, members)


@given(queues=QUEUES, members=MEMBERS)
def test_a_repeated_id_counts_once(queues, members):
    assert shares(queues, members + members[::2]) == shares(queues, members)


@given(queues=QUEUES, members=MEMBERS)
def test_an_explanation_names_the_owner_and_who_came_before(queues, members):
    snapshot = Snapshot.of("g", queues, members)
    result = CappedHash().allocate(snapshot)
    for queue in queues:
        why = CappedHash().explain(snapshot, queue)
        assert queue in result[why.owner]
        assert why.rule == "CAPPED_HASH"
        assert why.data["share"] == len(result[why.owner])
        assert why.data["choice"] == len(why.data["passed_over"]) + 1
        assert all(score(queue, one) >= why.data["score"] for one in why.data["passed_over"])
        assert queue.path in why.sentence
        assert repr(why.owner)[1:-1] in why.sentence or why.owner in why.sentence


def test_the_sentence_counts_those_it_does_not_name():
    queues = topic(40)
    snapshot = Snapshot.of("g", queues, group(20))
    sentences = [CappedHash().explain(snapshot, queue).sentence for queue in queues]
    assert any("came before it" in sentence for sentence in sentences)
    assert any("more came before it" in sentence for sentence in sentences)
    assert any("choice 1 of 20 and had a seat" in sentence for sentence in sentences)


def test_the_result_is_the_same_on_every_machine_and_in_every_version():
    result = shares(topic(8), ["ann", "bob", "cid"])
    assert {one: [queue.path for queue in share] for one, share in result.items()} == PINNED


def test_scores_follow_the_stem_so_that_a_new_strategy_name_moves_nothing():
    stems = [f"worker-{at}" for at in range(7)]
    for name in ("WEIGHTED", "CROSS_TOPIC"):
        old = shares(topic(50), [member_id(stem, "CAPPED_HASH") for stem in stems])
        new = shares(topic(50), [member_id(stem, name) for stem in stems])
        assert list(old.values()) == list(new.values())


def test_two_members_with_one_stem_share_evenly():
    twins = [member_id("w", "CAPPED_HASH", stream=stream) for stream in (False, True)]
    assert [len(share) for share in shares(topic(10), twins).values()] == [5, 5]


def test_scores_are_spread_evenly_over_members():
    members = group(8)
    scores = Scores(members)
    first = [0] * len(members)
    for at in range(4000):
        values = scores.of(number(f"queue {at}"))
        first[values.index(max(values))] += 1
    assert all(400 < count < 600 for count in first), first


def excess(event, queue_count, size, seed):
    queues = topic(queue_count + (event == "queue"), f"t{seed}")
    members = group(size + (event == "join"), seed)
    before = shares(queues[:queue_count], members[:size])
    after = shares(queues, members[1:] if event == "leave" else members)
    measured = measure(before, after)
    return (measured.moves - measured.least_moves) / queue_count


@pytest.mark.rule("B10.15")
@pytest.mark.parametrize("event", ["join", "leave", "queue"])
@pytest.mark.parametrize("queue_count", [64, 256])
def test_pitfall_15_moves_are_close_to_the_least_over_group_sizes(event, queue_count):
    sizes = (2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200)
    assert (
        fmean(excess(event, queue_count, size, seed) for size in sizes for seed in (1, 2, 3))
        <= 0.05
    )


@pytest.mark.parametrize("queue_count", [64, 256])
def test_a_topic_that_grows_by_an_eighth_moves_what_taking_it_back_would(queue_count):
    beyond = []
    for size in (2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200):
        for seed in (1, 2, 3):
            queues, members = topic(queue_count * 9 // 8, f"t{seed}"), group(size, seed)
            before, after = shares(queues[:queue_count], members), shares(queues, members)
            there, back = measure(before, after), measure(after, before)
            assert there.least_moves == 0, "somebody who remembers need not move any"
            assert there.moves == back.moves >= back.least_moves
            beyond.append((there.moves - back.least_moves) / queue_count)
    # Without memory the same queues move in both directions, so the way back sets the least.
    assert fmean(beyond) <= 0.05


def test_few_proposals_are_made_for_each_queue(monkeypatch):
    calls = []
    of = Scores.of

    def counted(self, one):
        calls.append(one)
        return of(self, one)

    monkeypatch.setattr(Scores, "of", counted)
    shares(topic(2000), group(200))
    assert len(calls) < 2000 * 1.5


# ---- seats -------------------------------------------------------------------------------------


def test_equal_members_have_equal_seats_and_share_the_remainder():
    seats = level_seats(7, 1, [0, 0, 0], [Fraction(1)] * 3)
    assert seats == Seats([2, 2, 2], [True] * 3, 1)


def test_seats_fill_up_what_members_have_less():
    assert level_seats(3, 1, [5, 2, 4], [Fraction(1)] * 3) == Seats(
        [0, 2, 0], [False, True, True], 1
    )


def test_seats_follow_capacities():
    seats = level_seats(6, 1, [0, 0], [Fraction(1), Fraction(2)])
    assert [own + shared for own, shared in zip(seats.own, seats.shared, strict=True)] == [2, 4]
    assert sum(seats.own) + seats.extra == 6


def test_who_has_no_seat_gets_nothing():
    owners = place([number("q1"), number("q2")], Scores(["a", "b"]), Seats([0, 2], [False] * 2, 0))
    assert owners == [1, 1]


# ---- agreement ---------------------------------------------------------------------------------


def test_our_names_are_known():
    assert strategy_names()[6:10] == ("CAPPED_HASH", "CROSS_TOPIC", "WEIGHTED", "ZONED")


@pytest.mark.parametrize("name", OURS)
def test_a_group_that_is_all_ours_uses_the_strategy(name):
    assert agreed_strategy([member_id(stem, name) for stem in "abc"], name) == Agreement(name)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("other", ["10.0.0.7@4711#8", "b@gmq1-AVG", "b@gmq2-CAPPED_HASH"])
def test_beside_another_member_everyone_falls_back_to_avg(name, other):
    agreement = agreed_strategy([member_id("a", name), other], name)
    assert agreement.strategy == "AVG"
    assert f"instead of {name}" in agreement.reason


def test_capped_hash_has_no_options():
    with pytest.raises(AllocationError, match="'CAPPED_HASH' has no option 'weights'"):
        strategy_named("CAPPED_HASH", {"weights": {}})
