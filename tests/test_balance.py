"""The public face: what it adds to the strategies below it."""

import doctest
import importlib.metadata
import sys
from types import SimpleNamespace

import pytest

from gimbalmq import balance
from gimbalmq.core.allocation import base
from gimbalmq.errors import AllocationError
from gimbalmq.model.queue import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_registered", {})


class Offered:
    """What an installed package could offer."""

    name = "OFFERED"

    def allocate(self, snapshot):
        return {snapshot.members[-1]: snapshot.queues}


class Misnamed(Offered):
    name = "OTHER"


@pytest.fixture
def offers(monkeypatch):
    """Entry points of an installed package: name -> object reference."""
    offering = SimpleNamespace(Offered=Offered, ready=Offered(), Misnamed=Misnamed)

    def install(**points):
        listed = importlib.metadata.EntryPoints(
            importlib.metadata.EntryPoint(name, value, balance.ENTRY_POINT_GROUP)
            for name, value in points.items()
        )
        monkeypatch.setattr(balance, "entry_points", listed.select)
        monkeypatch.setitem(sys.modules, "offering", offering)

    return install


def test_every_member_is_a_key_in_sorted_order():
    shares = balance.allocate("AVG", queues=reversed(QUEUES[:2]), members=["c", "a", "b"])
    assert list(shares.items()) == [("a", (QUEUES[0],)), ("b", (QUEUES[1],)), ("c", ())]


def test_strategy_objects_are_taken_as_they_are():
    strategy = balance.strategy("AVG_BY_CIRCLE")
    shares = balance.allocate(strategy, queues=QUEUES, members=["a", "b"], options={})
    assert shares == {"a": (QUEUES[0], QUEUES[2]), "b": (QUEUES[1], QUEUES[3])}
    with pytest.raises(AllocationError, match="given as an object and has its options already"):
        balance.allocate(strategy, queues=QUEUES, members=["a"], options={"virtual_nodes": 1})


def test_a_strategy_of_the_users_own():
    assert balance.allocate(Offered(), queues=QUEUES, members=["a", "b"]) == {
        "a": (),
        "b": tuple(QUEUES),
    }
    balance.register(Offered)
    assert balance.allocate("OFFERED", queues=QUEUES, members=["a"]) == {"a": tuple(QUEUES)}
    assert isinstance(balance.strategy("OFFERED"), balance.Strategy)


@pytest.mark.parametrize("function", ["allocate", "explain"])
@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("AVG", {"queues": []}, "group 'billing': no queues"),
        ("AVG", {"members": []}, "group 'billing': no members"),
        ("AVG", {"members": ["a", ""]}, "empty client id"),
        ("AVG", {"options": {"name": 1}}, "'AVG' has no option 'name'"),
        ("CONFIG", {"options": {"queues": {"z": [QUEUES[0]]}}}, "'z', which is not a member"),
        ("CONFIG", {"options": {"queues": {"z": []}}, "queues": []}, "no queues"),
        ("CONSISTENT_HASH", {"options": {"virtual_nodes": -2}}, "virtual_nodes is -2"),
        ("ROUND", {}, "unknown allocation strategy 'ROUND': known are AVG, AVG_BY_CIRCLE, CONFIG"),
        ("MACHINE_ROOM_NEARBY-ROUND", {}, "unknown allocation strategy 'ROUND'"),
        ("MACHINE_ROOM_NEARBY", {"options": {"inner": "ROUND"}}, "allocation strategy 'ROUND'"),
    ],
)
def test_errors_name_what_is_wrong(function, name, changes, message):
    arguments = {"queues": QUEUES, "members": ["a", "b"], "group": "billing", **changes}
    if function == "explain":
        arguments["queue"] = QUEUES[0]
    with pytest.raises(AllocationError, match=message):
        getattr(balance, function)(name, **arguments)


def test_explain_takes_the_queues_own_topic_only():
    others = [MessageQueue("another", "broker-a", number) for number in range(3)]
    why = balance.explain("AVG", queue=QUEUES[3], queues=[*others, *QUEUES], members=["a", "b"])
    assert why.owner == "b"
    assert why.data["queues"] == 4


@pytest.mark.parametrize("value", ["offering:Offered", "offering:ready"])
def test_strategies_of_installed_packages_are_found_by_name(offers, value):
    offers(OFFERED=value)
    assert balance.strategy_names()[-1] == "OFFERED"
    assert balance.allocate("OFFERED", queues=QUEUES, members=["a"]) == {"a": tuple(QUEUES)}
    rooms = {"room_of_queue": lambda _: "r", "room_of_member": lambda _: "r"}
    assert balance.strategy("MACHINE_ROOM_NEARBY-OFFERED", **rooms).inner.name == "OFFERED"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("OFFERED", "no_such_module:X", "cannot be imported .*no_such_module"),
        ("OFFERED", "offering:nothing", "cannot be imported .*nothing"),
        ("OFFERED", "offering:Misnamed", "whose name is 'OTHER': the two must be the same"),
        ("UNUSED", "offering:Offered", "unknown allocation strategy 'OFFERED': .*, UNUSED;"),
    ],
)
def test_offers_that_cannot_be_used_are_named(offers, name, value, message):
    offers(**{name: value})
    with pytest.raises(AllocationError, match=message):
        balance.strategy("OFFERED")


def test_the_examples_in_the_documentation_run():
    failures, tried = doctest.testmod(balance)
    assert tried >= 8
    assert failures == 0
