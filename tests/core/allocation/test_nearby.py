import pytest

from gimbalmq.core.allocation import Averagely, Nearby, Snapshot, strategy_named
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue


def prefix(name):
    return name.partition("-")[0]


def prefix_of_broker(queue):
    return prefix(queue.broker)


ROOMS = {"room_of_queue": prefix_of_broker, "room_of_member": prefix}
QUEUES = [
    MessageQueue("t", broker, number)
    for broker, count in {"r1-b": 4, "r2-b": 4, "r3-b": 3}.items()
    for number in range(count)
]


def shares(members, queues=QUEUES, inner="AVG"):
    strategy = strategy_named(f"MACHINE_ROOM_NEARBY-{inner}", ROOMS)
    result = strategy.allocate(Snapshot.of("g", queues, members))
    return {
        member: [f"{prefix(q.broker)}:{q.queue_id}" for q in share]
        for member, share in result.items()
    }


@pytest.mark.rule("B1.5a", "B1.5b")
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param(
            ["r1-c0", "r1-c1", "r2-c0"],
            {
                "r1-c0": ["r1:0", "r1:1", "r3:0"],
                "r1-c1": ["r1:2", "r1:3", "r3:1"],
                "r2-c0": ["r2:0", "r2:1", "r2:2", "r2:3", "r3:2"],
            },
            id="the room without members is shared by all",
        ),
        pytest.param(
            ["r1-c0", "r2-c0", "r3-c0"],
            {
                "r1-c0": ["r1:0", "r1:1", "r1:2", "r1:3"],
                "r2-c0": ["r2:0", "r2:1", "r2:2", "r2:3"],
                "r3-c0": ["r3:0", "r3:1", "r3:2"],
            },
            id="each takes its own room",
        ),
        pytest.param(
            ["r9-c0", "r9-c1"],
            {
                "r9-c0": ["r1:0", "r1:1", "r2:0", "r2:1", "r3:0", "r3:1"],
                "r9-c1": ["r1:2", "r1:3", "r2:2", "r2:3", "r3:2"],
            },
            id="members of a room without queues share all rooms",
        ),
    ],
)
def test_queues_stay_in_their_room_where_it_has_members(members, expected):
    assert shares(members) == expected


@pytest.mark.rule("B1.5b")
def test_remainders_of_rooms_without_members_fall_to_the_first_members():
    queues = [MessageQueue("t", broker, at) for broker in ("x-b", "y-b") for at in range(3)]
    sizes = [len(share) for share in shares(["m-0", "m-1", "m-2", "m-3"], queues).values()]
    assert sizes == [2, 2, 2, 0]


@pytest.mark.rule("B1.5b")
def test_rooms_without_members_come_in_javas_order():
    # U+1F600 is written as two units that sort before U+FB00, against Python's order of text.
    queues = [MessageQueue("t", f"{room}-b", 0) for room in ("\ufb00", "\U0001f600")]
    assert shares(["m-0"], queues) == {"m-0": ["\U0001f600:0", "\ufb00:0"]}


@pytest.mark.rule("B1.5e")
def test_the_name_is_made_of_the_inner_name():
    assert Nearby(Averagely(), **ROOMS).name == "MACHINE_ROOM_NEARBY-AVG"
    nested = strategy_named("MACHINE_ROOM_NEARBY", {"inner": Nearby(Averagely(), **ROOMS), **ROOMS})
    assert nested.name == "MACHINE_ROOM_NEARBY-MACHINE_ROOM_NEARBY-AVG"


def test_options_that_nearby_does_not_know_go_to_the_inner_strategy():
    strategy = strategy_named("MACHINE_ROOM_NEARBY-CONSISTENT_HASH", {**ROOMS, "virtual_nodes": 3})
    assert strategy.inner.virtual_nodes == 3
    with pytest.raises(AllocationError, match="'AVG' has no option 'virtual_nodes'"):
        strategy_named("MACHINE_ROOM_NEARBY-AVG", {**ROOMS, "virtual_nodes": 3})


@pytest.mark.rule("B1.5e")
def test_a_strategy_of_the_users_own_can_be_inside():
    class LastTakesAll:
        name = "LAST"

        def allocate(self, snapshot):
            return {snapshot.members[-1]: snapshot.queues}

    strategy = strategy_named("MACHINE_ROOM_NEARBY", {"inner": LastTakesAll(), **ROOMS})
    snapshot = Snapshot.of("g", QUEUES, ["r1-c0", "r1-c1"])
    strategy.check_names(snapshot.members)
    assert {m: len(s) for m, s in strategy.allocate(snapshot).items()} == {"r1-c0": 0, "r1-c1": 11}
    assert strategy.explain(snapshot, QUEUES[0]).owner == "r1-c1"


def test_names_in_the_options_of_the_inner_strategy_are_checked():
    strategy = strategy_named("MACHINE_ROOM_NEARBY-CONFIG", {**ROOMS, "queues": {"r1-c7": []}})
    with pytest.raises(AllocationError, match="r1-c7"):
        strategy.check_names(["r1-c0"])


@pytest.mark.rule("B1.5c")
@pytest.mark.parametrize("room", ["", None, 7])
@pytest.mark.parametrize(
    ("option", "what"), [("room_of_queue", "'t/r1-b/0'"), ("room_of_member", "'r1-c0'")]
)
def test_a_queue_or_member_without_a_room_is_named(option, what, room):
    strategy = strategy_named("MACHINE_ROOM_NEARBY-AVG", {**ROOMS, option: lambda _: room})
    with pytest.raises(AllocationError, match=rf"{option} returned {room!r} for \w+ {what}"):
        strategy.allocate(Snapshot.of("g", QUEUES, ["r1-c0"]))


@pytest.mark.rule("B1.5d")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("MACHINE_ROOM_NEARBY", ROOMS, "needs the option 'inner'"),
        ("MACHINE_ROOM_NEARBY-AVG", {}, "needs the option 'room_of_queue'"),
        ("MACHINE_ROOM_NEARBY-AVG", {**ROOMS, "room_of_member": "r1"}, "room_of_member is 'r1'"),
        ("MACHINE_ROOM_NEARBY", {**ROOMS, "inner": 7}, "option inner is 7"),
        ("MACHINE_ROOM_NEARBY-AVG", {**ROOMS, "inner": "CONFIG"}, "different inner strategies"),
        ("MACHINE_ROOM_NEARBY-AVG", {**ROOMS, "inner": 7}, "different inner strategies"),
        ("MACHINE_ROOM_NEARBY", {**ROOMS, "inner": Averagely(), "x": 1}, "options x have no use"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, message):
    with pytest.raises(AllocationError, match=message):
        strategy_named(name, options)


def test_inner_may_be_repeated_when_it_is_the_same():
    for inner in ("AVG", Averagely()):
        named = strategy_named("MACHINE_ROOM_NEARBY-AVG", {**ROOMS, "inner": inner})
        assert named.name == "MACHINE_ROOM_NEARBY-AVG"


@pytest.mark.parametrize(
    ("queue", "owner", "words"),
    [
        (QUEUES[0], "r1-c0", "room 'r1' has members of its own (2), who share its queues"),
        (QUEUES[-1], "r2-c0", "no member is in room 'r3', so all 3 share its queues"),
    ],
)
def test_an_explanation_says_who_could_have_had_the_queue(queue, owner, words):
    strategy = strategy_named("MACHINE_ROOM_NEARBY-AVG", ROOMS)
    why = strategy.explain(Snapshot.of("g", QUEUES, ["r1-c0", "r1-c1", "r2-c0"]), queue)
    assert why.owner == owner
    assert words in why.sentence
    assert why.data["inner"]["page_until"] > why.data["inner"]["page_from"]
