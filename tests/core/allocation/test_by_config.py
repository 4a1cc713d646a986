import pytest

from gimbalmq.core.allocation import ByConfig, Snapshot, assign, strategy_named
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

QUEUES = [MessageQueue("t", "a", number) for number in range(4)]


@pytest.mark.rule("B1.3a")
def test_a_member_has_its_list_in_the_order_in_which_it_is_written():
    strategy = ByConfig(queues={"m1": [QUEUES[3], QUEUES[0]]})
    shares = strategy.allocate(Snapshot.of("g", QUEUES, ["m1", "m2"]))
    assert shares == {"m1": (QUEUES[3], QUEUES[0]), "m2": ()}


@pytest.mark.rule("B1.3a")
def test_two_members_may_have_the_same_queue_as_in_java():
    strategy = ByConfig(queues={"m1": [QUEUES[0]], "m2": [QUEUES[0]]})
    snapshot = Snapshot.of("g", QUEUES, ["m1", "m2"])
    assert strategy.allocate(snapshot) == {"m1": (QUEUES[0],), "m2": (QUEUES[0],)}
    why = strategy.explain(snapshot, QUEUES[0])
    assert why.owner == "m1"
    assert why.data["owners"] == ["m1", "m2"]
    assert "2 members ('m1', 'm2')" in why.sentence


@pytest.mark.rule("B1.3c")
def test_a_list_is_filtered_by_the_queues_of_the_topic():
    retry = MessageQueue("%RETRY%g", "a", 0)
    gone = MessageQueue("t", "x", 9)
    strategy = ByConfig(queues={"m1": [QUEUES[1], retry, gone]})
    assert strategy.allocate(Snapshot.of("g", QUEUES, ["m1"])) == {"m1": (QUEUES[1],)}
    assert strategy.allocate(Snapshot.of("g", [retry], ["m1"])) == {"m1": (retry,)}
    assert strategy.allocate(Snapshot.of("g", [MessageQueue("u", "a", 0)], ["m1"])) == {"m1": ()}
    both = Snapshot.of("g", [*QUEUES, retry], ["m1"])
    assert assign(strategy, both) == {"m1": (retry, QUEUES[1])}
    assert strategy.allocate(both) == {"m1": (QUEUES[1], retry)}


def test_an_entry_may_name_the_stem_of_a_client_id():
    strategy = ByConfig(queues={"w": [QUEUES[0]], "v": [QUEUES[1]], "v@gmq1-CONFIG": [QUEUES[2]]})
    members = ["v@gmq1-CONFIG", "w@gmq1-CONFIG"]
    strategy.check_names([*members, "v"])
    assert strategy.allocate(Snapshot.of("g", QUEUES, members)) == {
        "v@gmq1-CONFIG": (QUEUES[2],),
        "w@gmq1-CONFIG": (QUEUES[0],),
    }


def test_a_member_that_is_not_running_does_not_stop_the_others():
    strategy = ByConfig(queues={"m1": [QUEUES[0]], "later": [QUEUES[1]]})
    assert strategy.allocate(Snapshot.of("g", QUEUES, ["m1"])) == {"m1": (QUEUES[0],)}


def test_a_question_about_given_members_refuses_an_unknown_name():
    strategy = ByConfig(queues={"m1": [QUEUES[0]], "m7": [QUEUES[1]]})
    with pytest.raises(AllocationError, match="'m7', which is not a member"):
        strategy.check_names(["m1", "m2"])


def test_explanations_of_a_listed_and_an_unlisted_queue():
    strategy = ByConfig(queues={"m1": [QUEUES[0]]})
    snapshot = Snapshot.of("g", QUEUES, ["m1", "m1"])
    assert strategy.explain(snapshot, QUEUES[0]).sentence == (
        "t/a/0 stands in the configured list of 'm1'."
    )
    unlisted = strategy.explain(snapshot, QUEUES[1])
    assert unlisted.owner is None
    assert "nobody" in unlisted.sentence


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ([QUEUES[0]], "option queues is a list"),
        ({"m1": ["t/a/0"]}, "the list of 'm1' contains 't/a/0'"),
    ],
)
def test_lists_of_another_form_are_refused(queues, message):
    with pytest.raises(AllocationError, match=message):
        strategy_named("CONFIG", {"queues": queues})
