from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.allocation import (
    CappedHash,
    CrossTopic,
    Snapshot,
    Weighted,
    Zoned,
    assign,
    explain,
    strategy_named,
)
from gimbalmq.core.allocation.weighted import weight_class
from gimbalmq.core.identity import agreed_strategy, member_id
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue


def prefix(name):
    return name.partition("-")[0]


def prefix_of_broker(queue):
    return prefix(queue.broker)


ZONES = {"zone_of_queue": prefix_of_broker, "zone_of_member": prefix}
QUEUES = st.lists(
    st.builds(
        MessageQueue,
        st.sampled_from(["t1", "t2"]),
        st.sampled_from(["z1-a", "z1-b", "z2-a", "z3-a"]),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=40,
    unique=True,
)
MEMBERS = st.lists(
    st.builds("{}-{}".format, st.sampled_from(["z1", "z2", "z4"]), st.integers(0, 9)),
    min_size=1,
    max_size=10,
    unique=True,
)
INNER = st.sampled_from(
    [CappedHash(), CrossTopic(), Weighted(weights={"t1/z1-a/0": 5, "t1/z3-a/1": 3})]
)


def topic(**counts):
    return [
        MessageQueue("t", f"{zone}-b", at) for zone, count in counts.items() for at in range(count)
    ]


def shares(queues, members, **options):
    strategy = strategy_named("ZONED", {**ZONES, **options})
    return assign(strategy, Snapshot.of("g", queues, members))


@given(queues=QUEUES, members=MEMBERS, inner=INNER)
def test_a_queue_leaves_its_zone_only_when_nobody_is_there(queues, members, inner):
    result = shares(queues, members, inner=inner)
    assert sorted(queue for share in result.values() for queue in share) == sorted(queues)
    inhabited = {prefix(member) for member in members}
    for member, share in result.items():
        for queue in share:
            zone = prefix_of_broker(queue)
            assert zone == prefix(member) or zone not in inhabited


@given(queues=QUEUES, members=MEMBERS, inner=INNER)
def test_inside_a_zone_the_inner_strategy_decides(queues, members, inner):
    result = shares(queues, members, inner=inner)
    for zone in {prefix(member) for member in members}:
        here = [queue for queue in queues if prefix_of_broker(queue) == zone]
        if here:
            near = [member for member in members if prefix(member) == zone]
            alone = assign(inner, Snapshot.of("g", here, near))
            for member in near:
                assert set(alone[member]) <= set(result[member])


@given(queues=QUEUES, members=MEMBERS, inner=INNER)
def test_an_explanation_names_the_owner(queues, members, inner):
    snapshot = Snapshot.of("g", queues, members)
    strategy = Zoned(inner, **ZONES)
    result = assign(strategy, snapshot)
    for queue in queues:
        why = explain(strategy, snapshot, queue)
        assert queue in result[why.owner]
        assert why.rule == strategy.name
        assert why.data["in_zone"] == any(prefix(one) == why.data["zone"] for one in members)
        assert f"{queue.path} is in zone '{why.data['zone']}'" in why.sentence


@given(
    near=st.integers(0, 9),
    far=st.integers(0, 9),
    spilled=st.integers(0, 40),
    others=st.integers(1, 4),
)
def test_the_spill_over_levels_what_members_have(near, far, spilled, others):
    members = ["z1-0", "z2-0", *(f"z9-{at}" for at in range(others))]
    queues = topic(z1=near, z2=far, z7=spilled // 2, z8=spilled - spilled // 2)
    if not queues:
        return
    result = shares(queues, members)
    own = {"z1-0": near, "z2-0": far}
    took = [member for member in members if len(result[member]) > own.get(member, 0)]
    least = min(len(share) for share in result.values())
    assert all(len(result[member]) <= least + 1 for member in took)


def test_the_spill_over_levels_weights():
    weights = {"t/z1-b/0": 4}
    result = shares(topic(z1=1, z3=6), ["z1-0", "z2-0"], inner="WEIGHTED", weights=weights)
    load = {
        member: sum(weight_class(weights.get(queue.path, 1)) for queue in share) // weight_class(1)
        for member, share in result.items()
    }
    assert load == {"z1-0": 5, "z2-0": 5}


def test_a_zone_that_gets_a_member_takes_its_queues_back_and_nothing_else_moves_between_zones():
    queues = topic(z1=6, z2=6)
    alone = shares(queues, ["z1-0", "z1-1"])
    joined = shares(queues, ["z1-0", "z1-1", "z2-0"])
    assert {prefix_of_broker(queue) for queue in joined["z2-0"]} == {"z2"}
    for member in ("z1-0", "z1-1"):
        assert set(joined[member]) == {q for q in alone[member] if prefix_of_broker(q) == "z1"}


@pytest.mark.parametrize(
    ("inner", "name", "cross_topic"),
    [
        ("CAPPED_HASH", "ZONED", False),
        ("CROSS_TOPIC", "ZONED-CROSS_TOPIC", True),
        ("WEIGHTED", "ZONED-WEIGHTED", False),
    ],
)
def test_the_name_tells_the_inner_strategy(inner, name, cross_topic):
    strategy = strategy_named("ZONED", {**ZONES, "inner": inner})
    assert (strategy.name, strategy.cross_topic) == (name, cross_topic)


def test_names_in_the_options_of_the_inner_strategy_are_checked():
    strategy = strategy_named("ZONED", {**ZONES, "inner": "WEIGHTED", "capacities": {"z1-7": 2}})
    with pytest.raises(AllocationError, match="z1-7"):
        strategy.check_names(["z1-0"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zone_of_queue": prefix_of_broker}, "needs the option 'zone_of_member'"),
        ({**ZONES, "zone_of_queue": "z1"}, "option zone_of_queue is 'z1'; give a function"),
        ({**ZONES, "zone_of_queue": "prefix:"}, "option zone_of_queue is 'prefix:'"),
        ({**ZONES, "zone_of_member": {"a": 1}}, "a mapping from client id to zone"),
        ({**ZONES, "zones_version": ""}, "option zones_version is ''"),
        ({**ZONES, "inner": "AVG"}, "option inner is 'AVG'; give CAPPED_HASH, CROSS_TOPIC or"),
        ({**ZONES, "inner": 7}, "option inner is 7"),
        ({**ZONES, "weights": {}}, "'CAPPED_HASH' has no option 'weights'"),
        (
            {**ZONES, "inner": Weighted(), "weights": {}},
            "inner strategy WEIGHTED is given as an object, so the options weights have no use",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(AllocationError, match=message):
        strategy_named("ZONED", options)


@pytest.mark.parametrize("zone", ["", None, 7])
@pytest.mark.parametrize(
    ("option", "what"), [("zone_of_queue", "'t/z1-b/0'"), ("zone_of_member", "'z1-0'")]
)
def test_a_queue_or_member_without_a_zone_is_named(option, what, zone):
    with pytest.raises(AllocationError, match=rf"{option} returned {zone!r} for \w+ {what}"):
        shares(topic(z1=1), ["z1-0"], **{option: lambda _: zone})


# ---- rules that can be compared ------------------------------------------------------------------

PREFIXES = {"zone_of_queue": "prefix:-", "zone_of_member": "prefix:-"}
BROKERS = {"z1-a": "z1", "z1-b": "z1", "z2-a": "z2", "z3-a": "z3"}


@given(queues=QUEUES, members=MEMBERS)
def test_functions_mappings_and_prefixes_that_say_the_same_share_out_the_same(queues, members):
    expected = shares(queues, members)
    assert shares(queues, members, **PREFIXES) == expected
    named = {member: prefix(member) for member in members}
    assert shares(queues, members, zone_of_queue=BROKERS, zone_of_member=named) == expected


def test_a_member_is_in_the_zone_of_its_stem_whatever_it_promises():
    strategy = Zoned(CappedHash(), BROKERS, {"ann": "z1", "bob": "z2"})
    ids = ("ann@gmq1-ZONED+rejoin30", "bob@gmq1-ZONED+rejoin30")
    result = assign(strategy, Snapshot.of("g", topic(z1=1), ids))
    assert sum(map(len, result.values())) == 1
    with pytest.raises(AllocationError, match="zone_of_member returned None for member 'cid'"):
        assign(strategy, Snapshot.of("g", topic(z1=1), ("cid",)))


def name(**options):
    return strategy_named("ZONED", {**PREFIXES, **options}).name


def test_equal_rules_have_equal_names_and_different_ones_do_not():
    names = [
        name(),
        name(zone_of_queue="prefix:."),
        name(zone_of_member="prefix:."),
        name(zone_of_queue=BROKERS),
        name(zone_of_queue={**BROKERS, "z3-a": "z1"}),
        name(zone_of_queue=prefix_of_broker, zones_version="1"),
        name(zone_of_queue=prefix_of_broker, zones_version="2"),
        name(zone_of_member=prefix, zones_version="1"),
        name(inner="CROSS_TOPIC"),
    ]
    assert len(set(names)) == len(names)
    assert all(one.startswith("ZONED.") for one in names)
    assert name(zone_of_queue=dict(reversed(BROKERS.items()))) == name(zone_of_queue=BROKERS)
    assert name(inner="WEIGHTED", weights={"t/b/0": 2}).count(".") == 2
    again = name(zone_of_queue=lambda queue: queue.topic, zones_version="1")
    assert again == name(zone_of_queue=prefix_of_broker, zones_version="1"), "as the author says"


def test_members_with_different_rules_use_avg_together():
    ids = [member_id("ann", name()), member_id("bob", name(zone_of_queue=BROKERS))]
    assert {
        agreed_strategy(ids, one).strategy for one in (name(), name(zone_of_queue=BROKERS))
    } == {"AVG"}
    assert agreed_strategy(ids[:1], name()).strategy == name()


def test_functions_without_a_version_cannot_be_compared():
    assert "zone_of_queue and zone_of_member without" in strategy_named("ZONED", ZONES).incomparable
    half = strategy_named("ZONED", {**PREFIXES, "zone_of_member": prefix})
    assert half.incomparable.startswith("zone_of_member without zones_version")
    assert not strategy_named("ZONED", {**ZONES, "zones_version": "1"}).incomparable
