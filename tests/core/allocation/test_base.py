import pytest

from gimbalmq.core.allocation import base
from gimbalmq.core.allocation.base import (
    Explanation,
    Snapshot,
    Strategy,
    assign,
    explain,
    register,
    strategy_named,
    strategy_names,
)
from gimbalmq.core.identity import JAVA_STRATEGIES
from gimbalmq.errors import AllocationError, ConfigurationError
from gimbalmq.model.queue import MessageQueue

QUEUES = [MessageQueue(topic, "b", number) for topic in ("t1", "t2") for number in range(3)]
SNAPSHOT = Snapshot.of("g", QUEUES, ["m1", "m2"])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_registered", {})


class FirstTakesAll:
    """A strategy as a user would write it."""

    name = "FIRST"

    def __init__(self, *, place=0):
        self.place = place
        self.seen = []

    def allocate(self, snapshot):
        self.seen.append(snapshot)
        return {snapshot.members[self.place]: list(snapshot.queues)}


class Answers:
    """A strategy that answers what the test says."""

    name = "ANSWERS"

    def __init__(self, answer):
        self.answer = answer

    def allocate(self, snapshot):
        return self.answer


@pytest.mark.rule("B1.0e")
def test_javas_six_are_known_by_javas_names():
    assert strategy_names()[:6] == (
        "AVG",
        "AVG_BY_CIRCLE",
        "CONFIG",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY",
        "CONSISTENT_HASH",
    )
    assert set(strategy_names()[:6]) == JAVA_STRATEGIES


@pytest.mark.rule("B1.0b")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AVG", {}),
        ("AVG_BY_CIRCLE", {}),
        ("CONFIG", {"queues": {}}),
        ("MACHINE_ROOM", {"rooms": ["r"]}),
        ("MACHINE_ROOM_NEARBY-AVG", {"room_of_queue": str, "room_of_member": str}),
        ("CONSISTENT_HASH", {}),
    ],
)
def test_every_strategy_refuses_an_empty_group(name, options):
    strategy = strategy_named(name, options)
    assert isinstance(strategy, Strategy)
    assert strategy.name == name
    with pytest.raises(AllocationError, match="no queues"):
        strategy.allocate(Snapshot.of("g", [], ["m"]))
    with pytest.raises(AllocationError, match="no members"):
        strategy.allocate(Snapshot.of("g", QUEUES, []))
    with pytest.raises(AllocationError, match="empty client id"):
        assign(strategy, Snapshot.of("g", QUEUES, [""]))


def test_a_strategy_of_the_users_own_sees_one_topic_at_a_time():
    strategy = FirstTakesAll()
    assert assign(strategy, SNAPSHOT) == {"m1": tuple(QUEUES), "m2": ()}
    assert [{queue.topic for queue in seen.queues} for seen in strategy.seen] == [{"t1"}, {"t2"}]


def test_a_strategy_that_asks_for_it_sees_all_topics_at_once():
    strategy = FirstTakesAll()
    strategy.cross_topic = True
    assert assign(strategy, SNAPSHOT) == {"m1": tuple(QUEUES), "m2": ()}
    assert strategy.seen == [SNAPSHOT]
    assert explain(strategy, SNAPSHOT, QUEUES[0]).data == {"queues": 6, "members": 2}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"m9": []}, "gave queues to 'm9', which is not a member of group 'g'"),
        ({"m1": [QUEUES[0]], "m2": [QUEUES[0]]}, "to 'm2', which was given already"),
        ({"m1": [MessageQueue("x", "b", 0)]}, "to 'm1', which is not in the snapshot"),
    ],
)
def test_a_wrong_answer_of_a_strategy_is_refused(answer, message):
    with pytest.raises(AllocationError, match=message):
        assign(Answers(answer), Snapshot.of("g", QUEUES[:3], ["m1", "m2"]))


def test_explaining_a_strategy_that_does_not_explain_itself():
    why = explain(FirstTakesAll(), SNAPSHOT, QUEUES[5])
    assert why == Explanation(
        "m1",
        "FIRST",
        {"queues": 3, "members": 2},
        "FIRST gives t2/b/2 to 'm1'; it does not say why.",
    )
    assert explain(Answers({}), SNAPSHOT, QUEUES[0]).owner is None


def test_explaining_a_strategy_that_explains_itself():
    strategy = FirstTakesAll()
    own = Explanation("m1", "FIRST", {}, "it is the first")
    strategy.explain = lambda snapshot, queue: own
    assert explain(strategy, SNAPSHOT, QUEUES[0]) is own


def test_only_queues_of_the_group_can_be_explained():
    with pytest.raises(AllocationError, match="t1/b/9 is not one of the 6 queues"):
        explain(strategy_named("AVG"), SNAPSHOT, MessageQueue("t1", "b", 9))
    with pytest.raises(AllocationError, match="no members"):
        explain(strategy_named("AVG"), Snapshot.of("g", QUEUES, []), QUEUES[0])


def test_a_registered_object_is_found_by_name_and_takes_no_options():
    strategy = register(FirstTakesAll())
    assert strategy_named("FIRST") is strategy
    assert strategy_names()[-1] == "FIRST"
    with pytest.raises(AllocationError, match=r"takes no options \(given: place\)"):
        strategy_named("FIRST", {"place": 1})


def test_a_registered_class_takes_its_options_by_name():
    register(FirstTakesAll)
    assert strategy_named("FIRST", {"place": 1}).place == 1
    assert strategy_named("FIRST").place == 0
    with pytest.raises(AllocationError, match="'FIRST' has no option 'size'; its options: place"):
        strategy_named("FIRST", {"size": 1})


def test_a_second_registration_replaces_the_first():
    register(FirstTakesAll)
    strategy = register(FirstTakesAll())
    assert strategy_named("FIRST") is strategy


@pytest.mark.parametrize("name", ["AVG", "MACHINE_ROOM_NEARBY-MINE"])
def test_names_of_this_package_cannot_be_replaced(name):
    strategy = FirstTakesAll()
    strategy.name = name
    with pytest.raises(AllocationError, match=f"'{name}' is taken"):
        register(strategy)


def test_a_name_that_no_client_id_could_carry_is_refused():
    strategy = FirstTakesAll()
    strategy.name = "A@B"
    with pytest.raises(ConfigurationError, match="cannot be part of a client id"):
        register(strategy)


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(type("NoMethod", (), {"name": "NO"}), id="no allocate"),
        pytest.param(type("Odd", (), {"name": 1, "allocate": len}), id="a name that is no text"),
        pytest.param("AVG", id="only a name"),
    ],
)
def test_what_is_no_strategy_cannot_be_registered(thing):
    with pytest.raises(AllocationError, match="is not a strategy"):
        register(thing)


def test_an_unknown_name_lists_the_known_ones():
    register(FirstTakesAll)
    with pytest.raises(
        AllocationError, match=r"unknown allocation strategy 'AVERAGE': known are AVG, .*, FIRST"
    ):
        strategy_named("AVERAGE")


def test_an_unknown_option_is_named_with_the_known_ones():
    with pytest.raises(AllocationError, match="'AVG' has no option 'rooms'; its options: none"):
        strategy_named("AVG", {"rooms": []})
