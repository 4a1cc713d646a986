import pytest

from gimbalmq.core.allocation import ConsistentHash, Snapshot, strategy_named
from gimbalmq.core.allocation.consistent_hash import md5_hash
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

QUEUES = [
    MessageQueue("TopicTest", broker, number)
    for broker in ("broker-a", "broker-b")
    for number in range(4)
]


def shares(members, queues=QUEUES, **options):
    result = ConsistentHash(**options).allocate(Snapshot.of("g", queues, members))
    return {
        member: [f"{queue.broker[-1]}{queue.queue_id}" for queue in share]
        for member, share in result.items()
    }


@pytest.mark.rule("B0d", "B1.6a")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("c0-0", 2316876094),
        ("c1-0", 3886541579),
        ("c2-0", 830676049),
        ("192.168.0.1@1#1-0", 695667078),
        ("192.168.0.1@1#1-9", 3226083565),
        (str(QUEUES[0]), 1987926524),
        (str(QUEUES[1]), 4291349817),
        (str(QUEUES[2]), 853506239),
        (str(QUEUES[3]), 3652785994),
        (str(QUEUES[4]), 2152192320),
        (str(QUEUES[5]), 672344976),
        (str(QUEUES[6]), 3597050942),
        (str(QUEUES[7]), 4140580766),
    ],
)
def test_the_ring_hash_is_javas(text, value):
    assert md5_hash(text) == value
    # The written-out form for many texts gives the same.
    assert ConsistentHash()._hashes([text]) == [value]


def test_half_a_surrogate_pair_is_hashed_as_java_encodes_it():
    assert md5_hash("\ud800") == md5_hash("?") == ConsistentHash()._hashes(["\ud800"])[0]


@pytest.mark.rule("B1.6b")
def test_the_ring_of_two_members():
    ring = ConsistentHash()._ring(("c0", "c1"))
    assert list(zip(ring.places, ring.owners, strict=False)) == [
        (305561999, "c1"), (456544949, "c0"), (846261781, "c1"), (1268724605, "c1"),
        (1522780571, "c1"), (1646399601, "c0"), (1833798699, "c0"), (1895315590, "c1"),
        (2105711043, "c1"), (2270084212, "c0"), (2316876094, "c0"), (2537895033, "c0"),
        (2713412354, "c0"), (3319699594, "c1"), (3886541579, "c1"), (3912933846, "c1"),
        (4128777646, "c0"), (4137623405, "c0"), (4239590646, "c1"), (4293005705, "c0"),
    ]  # fmt: skip


@pytest.mark.rule("B1.6b", "B1.6c")
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (["c0"], {"c0": ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]}),
        (["c0", "c1"], {"c0": ["a1", "b0"], "c1": ["a0", "a2", "a3", "b1", "b2", "b3"]}),
        (
            ["c0", "c1", "c2"],
            {"c0": ["a1", "b0"], "c1": ["a0", "a3", "b2", "b3"], "c2": ["a2", "b1"]},
        ),
        (["c0", "c2"], {"c0": ["a0", "a1", "b0", "b3"], "c2": ["a2", "a3", "b1", "b2"]}),
        (["c0", "c0", "c1"], {"c0": ["a0", "a1", "a3", "b0", "b2"], "c1": ["a2", "b1", "b3"]}),
    ],
)
def test_worked_examples(members, expected):
    assert shares(members) == expected


@pytest.mark.rule("B1.6c")
def test_sixteen_queues_and_four_members():
    queues = [MessageQueue("TopicTest", "broker-a", number) for number in range(16)]
    assert shares(["c0", "c1", "c2", "c3"], queues) == {
        "c0": ["a1", "a9", "a12"],
        "c1": ["a0", "a4", "a5", "a7", "a8"],
        "c2": ["a6", "a10", "a11", "a13", "a14", "a15"],
        "c3": ["a2", "a3"],
    }


@pytest.mark.rule("B1.6f")
def test_without_virtual_nodes_nobody_owns_anything():
    assert shares(["c0", "c1"], virtual_nodes=0) == {"c0": [], "c1": []}
    why = ConsistentHash(virtual_nodes=0).explain(Snapshot.of("g", QUEUES, ["c0"]), QUEUES[0])
    assert why.owner is None
    assert "the ring is empty" in why.sentence


@pytest.mark.rule("B1.6e", "B1.6g")
def test_of_two_nodes_at_one_place_the_later_one_stays():
    assert shares(["c0", "c1"], hash=lambda _: 7)["c1"] == [
        f"{queue.broker[-1]}{queue.queue_id}" for queue in QUEUES
    ]


@pytest.mark.rule("B1.6d")
def test_a_repeated_id_counts_on_from_the_nodes_it_still_has():
    seen = []

    def place(text):
        seen.append(text)
        return 0 if text.endswith("-0") else len(seen)

    ConsistentHash(virtual_nodes=2, hash=place)._ring(("a", "b", "a"))
    # b-0 took the place of a-0, so only one node of a stands when it comes again.
    assert seen == ["a-0", "a-1", "b-0", "b-1", "a-1", "a-2"]


def test_the_ring_is_built_once_for_the_same_members():
    calls = []

    def counted(text):
        calls.append(text)
        return md5_hash(text)

    strategy = ConsistentHash(hash=counted)
    for members in (["c0", "c1"], ["c1", "c0"]):
        strategy.allocate(Snapshot.of("g", QUEUES, members))
    assert len(calls) == 2 * 10 + 2 * len(QUEUES)
    strategy.allocate(Snapshot.of("g", QUEUES, ["c0"]))
    assert len(calls) == 2 * 10 + 2 * len(QUEUES) + 10 + len(QUEUES)


@pytest.mark.parametrize(
    ("queue", "owner", "place"), [(QUEUES[1], "c0", 4293005705), (QUEUES[0], "c1", 2105711043)]
)
def test_an_explanation_names_the_next_virtual_node(queue, owner, place):
    why = ConsistentHash().explain(Snapshot.of("g", QUEUES, ["c0", "c1"]), queue)
    assert (why.owner, why.data["place"], why.data["wraps"]) == (owner, place, False)
    assert why.data["hash"] == md5_hash(str(queue))
    assert md5_hash(why.data["virtual_node"]) == place
    assert why.data["virtual_node"].startswith(f"{owner}-")
    assert f"belongs to '{owner}'" in why.sentence


def test_an_explanation_says_when_the_search_goes_round():
    why = ConsistentHash(virtual_nodes=1, hash=len).explain(
        Snapshot.of("g", QUEUES, ["c", "dd"]), QUEUES[0]
    )
    assert (why.owner, why.data["place"], why.data["wraps"]) == ("c", 3, True)
    assert "the first of the ring is next" in why.sentence


@pytest.mark.rule("B1.6f")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"virtual_nodes": -1}, "virtual_nodes is -1; it must not be negative"),
        ({"virtual_nodes": 1.5}, "virtual_nodes is 1.5; give a whole number"),
        ({"virtual_nodes": True}, "virtual_nodes is True; give a whole number"),
        ({"hash": 5}, "hash is 5; give a function"),
        ({"nodes": 5}, "no option 'nodes'; its options: virtual_nodes, hash"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(AllocationError, match=message):
        strategy_named("CONSISTENT_HASH", options)
