"""What holds for every group, and a second implementation that must agree with the first.

The reference computes one member at a time, straight from the formulas of the specification. It
is slow on purpose and shares nothing with the package but the queue type and Java's order.
"""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.allocation import Snapshot, assign, strategy_named
from gimbalmq.model.java import utf16_key
from gimbalmq.model.queue import MessageQueue


def averagely(member, queues, members):
    i, n, c = members.index(member), len(queues), len(members)
    m = n % c
    if n <= c:
        size = 1
    elif i < m:
        size = n // c + 1
    else:
        size = n // c
    start = i * size if m > 0 and i < m else i * size + m
    return [queues[start + k] for k in range(min(size, n - start)) if start + k < n]


def circle(member, queues, members):
    i, c = members.index(member), len(members)
    return [queues[k] for k in range(i, len(queues)) if k % c == i]


def by_config(member, queues, members, *, lists):
    return [queue for queue in lists.get(member, []) if queue in queues]


def java_split(text):
    parts = text.split("@")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def machine_room(member, queues, members, *, rooms):
    i, c = members.index(member), len(members)
    matching = [
        queue
        for queue in queues
        if len(java_split(queue.broker)) == 2 and java_split(queue.broker)[0] in rooms
    ]
    q, r = len(matching) // c, len(matching) % c
    share = [matching[k] for k in range(i * q, i * q + q)]
    return [*share, matching[c * q + i]] if i < r else share


def nearby(member, queues, members, *, inner, room_of_queue, room_of_member):
    mine = room_of_member(member)
    share = []
    near = [queue for queue in queues if room_of_queue(queue) == mine]
    if near:
        share += inner(member, near, [one for one in members if room_of_member(one) == mine])
    live = {room_of_member(one) for one in members}
    for room in sorted({room_of_queue(queue) for queue in queues} - live, key=utf16_key):
        share += inner(member, [queue for queue in queues if room_of_queue(queue) == room], members)
    return share


def md5_number(text):
    b = hashlib.md5(text.encode()).digest()
    return b[0] * 2**24 + b[1] * 2**16 + b[2] * 2**8 + b[3]


def consistent_hash(member, queues, members, *, nodes=10, hash_of=md5_number):
    ring = {}
    for one in members:
        already = sum(owner == one for owner in ring.values())
        for v in range(nodes):
            ring[hash_of(f"{one}-{v + already}")] = one
    share = []
    for queue in queues:
        if not ring:
            continue
        x = hash_of(
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, "
            f"queueId={queue.queue_id}]"
        )
        place = min((place for place in ring if place >= x), default=min(ring))
        if ring[place] == member:
            share.append(queue)
    return share


#: Rooms, plain names, names that split into one and three parts, empty parts.
BROKERS = ["r1@a", "r1@b", "r2@a", "r2@b@", "r3@a", "plain", "r1@", "r1@b@c", "@a"]

QUEUES = st.lists(
    st.builds(MessageQueue, st.just("t"), st.sampled_from(BROKERS), st.integers(0, 12)),
    min_size=1,
    max_size=40,
    unique=True,
)
IDS = st.text("ab-@#.019é\U0001f600\ufb00", min_size=1, max_size=6)
MEMBERS = st.lists(IDS, min_size=1, max_size=12, unique=True)
#: Some ids are listed twice, as those with two connections are.
REPEATED = st.lists(IDS, min_size=1, max_size=6, unique=True).map(lambda ids: ids + ids[::2])
ROOMS = {"r1", "r2"}


def room_of_queue(queue):
    return "room " + queue.broker[:2]


def room_of_member(member):
    return "room " + ("r" + str(len(member) % 4))


def weak_hash(text):
    """Few different values, negative ones too: virtual nodes meet at one place."""
    return sum(map(ord, text)) % 37 - 18


NEARBY = {"room_of_queue": room_of_queue, "room_of_member": room_of_member}

#: name for the test, name of the strategy, options, reference
PAIRS = [
    ("avg", "AVG", {}, averagely),
    ("circle", "AVG_BY_CIRCLE", {}, circle),
    (
        "machine room",
        "MACHINE_ROOM",
        {"rooms": ROOMS},
        lambda *one: machine_room(*one, rooms=ROOMS),
    ),
    ("hash", "CONSISTENT_HASH", {}, consistent_hash),
    (
        "hash with collisions",
        "CONSISTENT_HASH",
        {"virtual_nodes": 5, "hash": weak_hash},
        lambda *one: consistent_hash(*one, nodes=5, hash_of=weak_hash),
    ),
    (
        "hash without nodes",
        "CONSISTENT_HASH",
        {"virtual_nodes": 0},
        lambda *one: consistent_hash(*one, nodes=0),
    ),
    *(
        (f"nearby {name}", f"MACHINE_ROOM_NEARBY-{name}", NEARBY, near)
        for name, near in [
            ("AVG", lambda *one: nearby(*one, inner=averagely, **NEARBY)),
            ("AVG_BY_CIRCLE", lambda *one: nearby(*one, inner=circle, **NEARBY)),
            ("CONSISTENT_HASH", lambda *one: nearby(*one, inner=consistent_hash, **NEARBY)),
        ]
    ),
]
every_pair = pytest.mark.parametrize(
    ("name", "options", "reference"),
    [pytest.param(*pair, id=title) for title, *pair in PAIRS],
)


def java_order(queues, members):
    by_java = sorted(queues, key=lambda q: (utf16_key(q.topic), utf16_key(q.broker), q.queue_id))
    return by_java, sorted(members, key=utf16_key)


def check_against_reference(name, options, reference, queues, members):
    shares = assign(strategy_named(name, options), Snapshot.of("g", queues, members))
    ordered, ids = java_order(queues, members)
    assert shares == {one: tuple(reference(one, ordered, ids)) for one in ids}


@pytest.mark.rule("B1.1a", "B1.2a", "B1.4c", "B1.5a", "B1.6c")
@every_pair
@given(queues=QUEUES, members=MEMBERS)
def test_the_whole_group_equals_one_member_at_a_time(name, options, reference, queues, members):
    check_against_reference(name, options, reference, queues, members)


@pytest.mark.rule("B1.1c", "B1.2b", "B1.6d")
@every_pair
@given(queues=QUEUES, members=REPEATED)
def test_a_repeated_id_is_treated_as_java_treats_it(name, options, reference, queues, members):
    check_against_reference(name, options, reference, queues, members)


@pytest.mark.rule("B1.3b", "B1.3c")
@given(queues=QUEUES, members=MEMBERS, data=st.data())
def test_config_equals_the_filtered_lists(queues, members, data):
    others = [MessageQueue("other", "b", number) for number in range(3)]
    some = st.lists(st.sampled_from([*queues, *others]), max_size=8)
    lists = {one: data.draw(some) for one in members[::2]}
    shares = assign(strategy_named("CONFIG", {"queues": lists}), Snapshot.of("g", queues, members))
    assert shares == {one: tuple(by_config(one, queues, members, lists=lists)) for one in members}


@pytest.mark.rule("B10")
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for _, name, options, _ in PAIRS if "virtual_nodes" not in options],
    ids=[title for title, _, options, _ in PAIRS if "virtual_nodes" not in options],
)
@given(queues=QUEUES, members=MEMBERS)
def test_every_queue_that_counts_has_exactly_one_owner(name, options, queues, members):
    shares = assign(strategy_named(name, options), Snapshot.of("g", queues, members))
    owned = [queue for share in shares.values() for queue in share]
    assert len(owned) == len(set(owned)), "two owners"
    counting = set(queues)
    if name == "MACHINE_ROOM":
        counting = {q for q in queues if q.broker in {"r1@a", "r1@b", "r2@a", "r2@b@"}}
    assert set(owned) == counting


@pytest.mark.rule("B10")
@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
@given(queues=QUEUES, members=MEMBERS)
def test_shares_differ_by_at_most_one(name, queues, members):
    shares = assign(strategy_named(name), Snapshot.of("g", queues, members))
    sizes = {len(share) for share in shares.values()}
    assert max(sizes) - min(sizes) <= 1


@every_pair
@given(queues=QUEUES, members=REPEATED, seed=st.integers())
def test_the_order_in_which_things_are_given_does_not_matter(
    name, options, reference, queues, members, seed
):
    strategy = strategy_named(name, options)
    chance = random.Random(seed)
    shuffled = [chance.sample(queues, len(queues)), chance.sample(members, len(members))]
    given_order = assign(strategy, Snapshot.of("g", queues, members))
    assert assign(strategy, Snapshot.of("g", *shuffled)) == given_order


@pytest.mark.rule("B1.6h")
@given(queues=QUEUES, members=MEMBERS, newcomer=IDS)
def test_under_consistent_hash_a_join_moves_queues_only_to_the_newcomer(queues, members, newcomer):
    strategy = strategy_named("CONSISTENT_HASH")
    before = assign(strategy, Snapshot.of("g", queues, members))
    after = assign(strategy, Snapshot.of("g", queues, {*members, newcomer}))
    for member in members:
        if member != newcomer:
            assert set(after[member]) <= set(before[member])


@every_pair
@given(queues=QUEUES, members=REPEATED)
def test_an_explanation_names_the_owner_that_allocate_names(
    name, options, reference, queues, members
):
    strategy = strategy_named(name, options)
    snapshot = Snapshot.of("g", queues, members)
    shares = assign(strategy, snapshot)
    for queue in queues:
        owner = next((member for member, share in shares.items() if queue in share), None)
        explanation = strategy.explain(snapshot, queue)
        assert explanation.owner == owner
        assert explanation.rule == name
        assert queue.path in explanation.sentence
        assert (owner or "nobody") in explanation.sentence


@given(
    topics=st.lists(st.sampled_from(["t1", "t2", "t3"]), min_size=1, unique=True),
    counts=st.lists(st.integers(1, 7), min_size=3, max_size=3),
    members=MEMBERS,
)
def test_several_topics_are_shared_out_one_after_the_other(topics, counts, members):
    by_topic = {
        topic: [MessageQueue(topic, "b", number) for number in range(count)]
        for topic, count in zip(sorted(topics), counts, strict=False)
    }
    queues = [queue for listed in by_topic.values() for queue in listed]
    strategy = strategy_named("AVG")
    together = assign(strategy, Snapshot.of("g", queues, members))
    alone = [assign(strategy, Snapshot.of("g", listed, members)) for listed in by_topic.values()]
    for member in members:
        assert together[member] == tuple(queue for part in alone for queue in part[member])
