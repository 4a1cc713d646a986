import pytest

from gimbalmq.core.allocation import MachineRoom, Snapshot, strategy_named
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue


def snapshot(brokers, members):
    queues = [MessageQueue("t", name, at) for name, count in brokers.items() for at in range(count)]
    return Snapshot.of("g", queues, members)


def shares(brokers, members, rooms=("R1",)):
    result = MachineRoom(rooms=rooms).allocate(snapshot(brokers, members))
    return {member: [f"{q.broker}:{q.queue_id}" for q in share] for member, share in result.items()}


@pytest.mark.rule("B1.4a", "B1.4c", "B1.4d", "B1.4e", "B11g")
@pytest.mark.parametrize(
    ("brokers", "members", "expected"),
    [
        (
            {"R1@b1": 3, "R2@b2": 3},
            ["c0", "c1"],
            {"c0": ["R1@b1:0", "R1@b1:2"], "c1": ["R1@b1:1"]},
        ),
        (
            {"R1@b1": 4, "R2@b2": 2},
            ["c0", "c1", "c2"],
            {"c0": ["R1@b1:0", "R1@b1:3"], "c1": ["R1@b1:1"], "c2": ["R1@b1:2"]},
        ),
        (
            {"R1@b1": 2, "b2": 2},
            ["c0", "c1", "c2"],
            {"c0": ["R1@b1:0"], "c1": ["R1@b1:1"], "c2": []},
        ),
        pytest.param(
            {"R0@b0": 2, "R1@b1": 4},
            ["c0", "c1"],
            {"c0": ["R1@b1:0", "R1@b1:1"], "c1": ["R1@b1:2", "R1@b1:3"]},
            id="before 4.8.0, and in article 003, c0 got R0's queues; Java since then wins",
        ),
        ({"x": 2, "R1@b@c": 4}, ["c0", "c1"], {"c0": [], "c1": []}),
    ],
)
def test_only_the_chosen_rooms_are_shared_out(brokers, members, expected):
    assert shares(brokers, members) == expected


@pytest.mark.rule("B1.4b")
@pytest.mark.parametrize(
    ("broker", "counts"),
    [
        ("R1@", False),
        ("R1@b@", True),
        ("R1@b@@", True),
        ("R1@@b", False),
        ("@R1", False),
        ("", False),
    ],
)
def test_broker_names_are_split_as_java_splits_text(broker, counts):
    assert shares({broker: 1}, ["c"]) == {"c": [f"{broker}:0"] if counts else []}


def test_a_repeated_id_has_its_first_share():
    assert shares({"R1@b": 4}, ["A", "A", "B"]) == {"A": ["R1@b:0", "R1@b:3"], "B": ["R1@b:2"]}


def test_no_room_chosen_means_that_nobody_has_anything():
    assert shares({"R1@b": 4}, ["c0"], rooms=[]) == {"c0": []}


@pytest.mark.parametrize(
    ("at", "owner", "words"),
    [
        (("R1@b", 1), "c1", "blocks of 1 are cut from the front"),
        (("R1@b", 2), "c0", "left over at the tail"),
        (("R2@b", 0), None, "room 'R2' is not one of ['R1']"),
        (("plain", 0), None, "broker 'plain' is not named room@name"),
    ],
)
def test_explanations(at, owner, words):
    group = snapshot({"R1@b": 3, "R2@b": 1, "plain": 1}, ["c0", "c1"])
    why = MachineRoom(rooms={"R1"}).explain(group, MessageQueue("t", *at))
    assert why.owner == owner
    assert words in why.sentence


@pytest.mark.parametrize("rooms", ["R1", 5, ["R1", 2]])
def test_rooms_of_another_form_are_refused(rooms):
    with pytest.raises(AllocationError, match="option rooms"):
        strategy_named("MACHINE_ROOM", {"rooms": rooms})


def test_rooms_have_to_be_given():
    with pytest.raises(AllocationError, match="'MACHINE_ROOM' needs the option 'rooms'"):
        strategy_named("MACHINE_ROOM")
