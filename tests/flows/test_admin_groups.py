import pytest

from flows.script import Script, ok, refusal
from flows.test_admin import CLUSTER, servers
from gimbalmq.errors import BrokerError, TransportError
from gimbalmq.flows.admin_groups import (
    Member,
    fetch_assignments,
    fetch_consume_stats,
    list_groups,
    view_group,
)
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    GroupConfig,
    GroupConfigTable,
    PopQueueInfo,
    QueueInfo,
    QueueProgress,
    RunningInfo,
    encode_consume_stats,
    encode_consumer_connection,
    encode_group_table,
    encode_running_info,
)
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.codes import version_ordinal
from gimbalmq.wire.subscription import parse_tags

OFFLINE = refusal(206, "the consumer group not online")
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def connected(*members, model="CLUSTERING"):
    connections = tuple(
        ClientConnection(client_id, address, language, version_ordinal("5.3.3"))
        for client_id, address, language in members
    )
    subscriptions = {"orders": parse_tags("orders", "*", 1)}
    return ok(
        encode_consumer_connection(
            ConsumerConnection(connections, subscriptions, "CONSUME_PASSIVELY", model)
        )
    )


def holding(*queues, dropped=(), popped=()):
    return ok(
        encode_running_info(
            RunningInfo(
                {},
                queues={queue: QueueInfo(dropped=queue in dropped) for queue in queues},
                pop_queues={queue: PopQueueInfo() for queue in popped},
            )
        )
    )


ANN = ("ann@gmq1-AVG", "1.2.3.4:5", "PYTHON")
BOB = ("1.2.3.4@77", "1.2.3.4:6", "JAVA")


def test_groups_are_listed_without_what_rocketmq_made_itself():
    def table(*names):
        return ok(encode_group_table(GroupConfigTable({name: GroupConfig(name) for name in names})))

    answers = table("billing", "TOOLS_CONSUMER"), table("CID_RMQ_SYS_X", "audit", "billing")
    script = Script(CLUSTER, *answers)
    assert script.run(list_groups(servers(), 3.0)) == ("audit", "billing")
    everything = Script(CLUSTER, *answers).run(list_groups(servers(), 3.0, internal=True))
    assert everything == ("CID_RMQ_SYS_X", "TOOLS_CONSUMER", "audit", "billing")


@pytest.mark.rule("W2.9a")
def test_members_are_those_of_all_brokers_with_what_their_ids_say():
    script = Script(CLUSTER, connected(BOB), connected(ANN, BOB))
    view = script.run(view_group(servers(), "billing", 3.0))
    assert view.members == (
        Member("1.2.3.4@77", "1.2.3.4:6", "JAVA", "5.3.3", None),
        Member("ann@gmq1-AVG", "1.2.3.4:5", "PYTHON", "5.3.3", "AVG"),
    )
    assert view.topics == {"orders"}
    assert not view.broadcasting
    assert script.calls[1].command.fields == {"consumerGroup": "billing", "bname": "broker-a"}


def test_a_shared_client_id_is_listed_as_often_as_brokers_count_it():
    other = ("ann@gmq1-AVG", "9.9.9.9:1", "PYTHON")
    script = Script(CLUSTER, connected(ANN), connected(ANN, other))
    view = script.run(view_group(servers(), "billing", 3.0))
    assert [member.address for member in view.members] == ["1.2.3.4:5", "9.9.9.9:1"]


def test_a_group_without_members_is_an_answer_and_a_refusal_is_an_error():
    view = Script(CLUSTER, OFFLINE, OFFLINE).run(view_group(servers(), "billing", 3.0))
    assert (view.members, view.topics, view.broadcasting) == ((), frozenset(), False)
    with pytest.raises(BrokerError, match="a:1 refused GET_CONSUMER_CONNECTION_LIST"):
        Script(CLUSTER, refusal(16)).run(view_group(servers(), "billing", 3.0))
    with pytest.raises(TransportError):
        Script(CLUSTER, OFFLINE, TransportError("gone")).run(view_group(servers(), "billing", 3.0))


def test_a_broadcasting_group_is_recognised():
    script = Script(CLUSTER, OFFLINE, connected(ANN, model="BROADCASTING"))
    assert script.run(view_group(servers(), "billing", 3.0)).broadcasting


def test_every_member_is_asked_through_a_broker_that_knows_it():
    script = Script(
        *(CLUSTER, connected(BOB), connected(ANN, BOB)),
        *(
            holding(QUEUES[0], QUEUES[1], dropped={QUEUES[1]}),
            holding(QUEUES[2], popped=QUEUES[3:]),
        ),
    )
    held = script.run(fetch_assignments(servers(), "billing", 3.0))
    assert held == {"1.2.3.4@77": {QUEUES[0]}, "ann@gmq1-AVG": {QUEUES[2], QUEUES[3]}}
    assert script.asked[3:] == [
        ("a:1", R.GET_CONSUMER_RUNNING_INFO),
        ("b:1", R.GET_CONSUMER_RUNNING_INFO),
    ]
    asked = script.calls[3]
    assert asked.command.fields == {
        "consumerGroup": "billing",
        "clientId": "1.2.3.4@77",
        "jstackEnable": "false",
        "bname": "broker-a",
    }
    # Where only one broker can ask: longer than that itself waits for the member.
    assert script.calls[4].timeout_s > 10.0


@pytest.mark.parametrize("failure", [refusal(1, "not online"), TransportError("gone")])
def test_another_broker_is_asked_when_one_cannot_reach_the_member(failure):
    script = Script(CLUSTER, connected(ANN), connected(ANN), failure, holding(QUEUES[0]))
    assert script.run(fetch_assignments(servers(), "billing", 3.0)) == {ANN[0]: {QUEUES[0]}}
    # Silence costs one time limit, and little more, though several brokers are asked.
    assert [call.timeout_s for call in script.calls[3:]] == [3.0, 11.0]


def test_a_member_that_has_left_meanwhile_is_left_out():
    script = Script(
        *(CLUSTER, connected(ANN, BOB), OFFLINE, refusal(1, "not online"), holding(QUEUES[0])),
        *(CLUSTER, connected(ANN), OFFLINE),
    )
    assert script.run(fetch_assignments(servers(), "billing", 3.0)) == {ANN[0]: {QUEUES[0]}}


def test_a_member_that_is_there_and_silent_is_an_error():
    script = Script(
        *(CLUSTER, connected(ANN), OFFLINE, refusal(1, "timeout")),
        *(CLUSTER, connected(ANN), OFFLINE),
    )
    with pytest.raises(BrokerError, match=r"GET_CONSUMER_RUNNING_INFO.*timeout"):
        script.run(fetch_assignments(servers(), "billing", 3.0))


def test_progress_is_put_together_from_all_brokers():
    one, two = (
        ConsumeStats({MessageQueue("orders", name, 0): QueueProgress(9, 4)}, 1.0)
        for name in ("broker-a", "broker-b")
    )
    script = Script(CLUSTER, ok(encode_consume_stats(one)), ok(encode_consume_stats(two)))
    stats = script.run(fetch_consume_stats(servers(), "billing", 3.0, topic="orders"))
    assert stats == ConsumeStats(one.queues | two.queues, 2.0)
    assert script.calls[1].command.fields["topic"] == "orders"
