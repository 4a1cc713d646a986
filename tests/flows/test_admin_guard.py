"""What a watcher sends to brokers, and what it makes of those that do not answer."""

from flows.script import Script, ok, refusal
from gimbalmq.errors import TransportError
from gimbalmq.flows.admin_guard import release_locks, see_group, wake_group
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import (
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    decode_lock,
    encode_cluster,
    encode_consumer_connection,
    encode_route,
)
from gimbalmq.wire.codes import RequestCode, version_ordinal

SERVERS = NameServers(("ns:1",))
BROKERS = tuple(BrokerSet(name, "c", {0: f"{name}:1"}) for name in ("a", "b"))
CLUSTER = ClusterInfo({one.name: one for one in BROKERS}, {"c": ("a", "b")})
ROUTE = TopicRoute("orders", BROKERS, tuple(QueueData(name, 2, 2, 6) for name in ("a", "b")))


def listed(*ids):
    connections = tuple(
        ClientConnection(one, "10.0.0.1:9", "JAVA", version_ordinal("5.5.0")) for one in ids
    )
    return ok(encode_consumer_connection(ConsumerConnection(connections)))


def test_a_look_has_every_broker_also_the_one_that_does_not_answer():
    script = Script(ok(encode_cluster(CLUSTER)), listed("ann"), TransportError("gone"))
    seen = script.run(see_group(SERVERS, "billing", 3.0))
    (first, second) = seen.look.brokers
    assert [(one.client_id, one.release) for one in first.members] == [("ann", "5.5.0")]
    assert second.members is None
    assert [view.broker for view in seen.view.brokers] == ["a"]


def test_locks_are_released_in_the_name_of_the_dead_on_each_master():
    script = Script(
        ok(encode_route(ROUTE)), refusal(17), ok(), refusal(1, "busy")
    )  # the second topic, made when it is first needed, does not exist
    failures = script.run(release_locks(SERVERS, "billing", ["orders", "zz-retry"], ["dead"], 3.0))
    unlocks = [call for call in script.calls if call.command.code == RequestCode.UNLOCK_BATCH_MQ]
    assert [call.address for call in unlocks] == ["a:1", "b:1"]
    bodies = [decode_lock(call.command.body) for call in unlocks]
    assert {(body.group, body.client_id) for body in bodies} == {("billing", "dead")}
    assert set(bodies[0].queues) == {MessageQueue("orders", "a", number) for number in (0, 1)}
    assert failures.keys() == {"b"}


def test_every_broker_is_asked_to_wake_the_group():
    script = Script(ok(encode_cluster(CLUSTER)), ok(), TransportError("gone"))
    failures = script.run(wake_group(SERVERS, "billing", 3.0))
    assert script.asked[1:] == [
        ("a:1", RequestCode.UNREGISTER_CLIENT),
        ("b:1", RequestCode.UNREGISTER_CLIENT),
    ]
    assert script.calls[1].command.fields["consumerGroup"] == "billing"
    assert failures == {"b": "gone"}
