"""Queues with locks change hands under a load of keyed messages: on joins, leaves and a kill."""

import pytest

from gimbalmq.testing.checkers import check_loss, check_once, check_order
from interop.keyed_load import LISTENER_S, KeyedLoad, LoadedGroup, duplicates
from interop.python_member import PythonMember


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["ordered", "lease"])
def test_clean_hand_overs_deliver_once_and_a_kill_loses_nothing(
    rocketmq, topic, group_name, mode, record_property
):
    def member():
        return PythonMember(
            rocketmq.nameserver, group_name, topic, listener_s=LISTENER_S, **{mode: True}
        )

    load = KeyedLoad(rocketmq.nameserver, topic)
    with LoadedGroup(load, topic, group_name) as group:
        with load:
            first = group.join("one joins", member)
            second = group.join("a second joins", member)
            group.join("a third joins", member)
            group.leave("one leaves", first)
            clean = group.history()
            group.die("one is killed", second)
        group.finish()
    history = group.history()
    record_property("duplicates", duplicates(history))
    record_property("settled_s", str(group.settled_s))
    assert check_once(clean) == []
    assert check_loss(history) == []
    if mode == "ordered":
        assert check_order(history, topic) == []
