"""Java and Python members in one group on real RocketMQ, through joins, leaves and kills, under load."""

import pytest

from gimbalmq.testing.checkers import check_loss, check_order
from interop.keyed_load import LISTENER_S, JavaMember, KeyedLoad, LoadedGroup, duplicates
from interop.python_member import PythonMember

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600, func_only=True)]

#: What a Java member may go on for without its broker is refused.
FOREIGN_GRACE_S = 31.0
#: Java renews locks every 20 s, and a broker forgets them 60 s after that: whoever has the queues of
#: a dead member within 40 s did not wait for it.
BEFORE_LOCKS_EXPIRE_S = 39.0


@pytest.fixture
def load(rocketmq, topic):
    return KeyedLoad(rocketmq.nameserver, topic)


@pytest.mark.rule("B2.3b", "B2.3d", "B8.6c")
@pytest.mark.parametrize(
    "allocation",
    [
        "AVG",
        # test_every_strategy has these on every version, without load.
        pytest.param("AVG_BY_CIRCLE", marks=pytest.mark.product),
        pytest.param("CONSISTENT_HASH", marks=pytest.mark.product),
    ],
)
def test_members_of_both_languages_share_the_queues_through_every_change(
    rocketmq, new_java_peer, topic, group_name, load, allocation, record_property
):
    def java():
        return JavaMember(new_java_peer(), group_name, topic, allocation=allocation)

    def python():
        return PythonMember(
            rocketmq.nameserver, group_name, topic, allocation, listener_s=LISTENER_S
        )

    with LoadedGroup(load, topic, group_name, allocation) as group:
        with load:
            java1 = group.join("java joins", java)
            python1 = group.join("python joins", python)
            python2 = group.join("second python joins", python)
            java2 = group.join("second java joins", java)
            group.join("third python joins", python)
            group.leave("python leaves", python1)
            group.die("java is killed", java1)
            group.die("python is killed", python2)
            group.leave("java leaves", java2)
        group.finish()
    history = group.history()
    record_property("duplicates", duplicates(history))
    record_property("settled_s", str(group.settled_s))
    assert check_loss(history) == []


@pytest.mark.product
def test_an_ordered_group_of_both_languages_keeps_the_order_of_keys_through_every_change(
    rocketmq, new_java_peer, topic, group_name, load, record_property
):
    def java():
        return JavaMember(new_java_peer(), group_name, topic, ordered=True)

    def python():
        options = {"ordered": True, "take_over_foreign_grace_s": FOREIGN_GRACE_S}
        return PythonMember(
            rocketmq.nameserver, group_name, topic, listener_s=LISTENER_S, **options
        )

    with LoadedGroup(load, topic, group_name) as group:
        with load:
            java1 = group.join("java joins", java)
            python1 = group.join("python joins", python)
            java2 = group.join("second java joins", java)
            python2 = group.join("second python joins", python)
            group.leave("python leaves", python1)
            group.leave("java leaves", java1)
            group.die("java is killed", java2, within_s=BEFORE_LOCKS_EXPIRE_S)
            group.join("third java joins", java)
            # Java does not take over: it waits until the broker has forgotten the locks.
            group.die("python is killed", python2)
        group.finish()
    history = group.history()
    record_property("duplicates", duplicates(history))
    record_property("settled_s", str(group.settled_s))
    assert check_loss(history) == []
    assert check_order(history, topic) == []
