"""What users may rely on when they call us: names of arguments, their order and their defaults.

Arguments may be added where no call notices: with defaults, behind those that are here.
"""

from __future__ import annotations

import inspect

import pytest

import gimbalmq

_SEND = "message, *, queue=None, selector=None, timeout_s=None"

#: By name: the arguments that are promised.
PROMISED = {
    "MessageQueue": "topic, broker, queue_id",
    "Message": (
        "topic, body, *, tags=None, keys=(), properties=None, delay_level=None, deliver_at=None, "
        "sharding_key=None"
    ),
    "balance.allocate": "strategy, *, queues, members, group='', options=None",
    "balance.explain": "strategy, *, queue, queues, members, group='', options=None",
    "balance.measure": "before, after",
    "balance.Snapshot": "group, queues, members",
    "balance.register": "strategy",
    "balance.strategy": "name, **options",
    "Producer": (
        "group, *, nameserver=None, timeout_s=3.0, retries=2, fault_tolerance=False, "
        "client_id=None, check=None, **others"
    ),
    "FaultTolerance": "*, rules='5.x', latency_s=None, isolate_s=None, detector=False",
    "Producer.send": f"self, {_SEND}",
    "Producer.send_async": f"self, {_SEND}",
    "Producer.send_oneway": "self, message, *, queue=None, selector=None",
    "Producer.send_batch": f"self, {_SEND.replace('message', 'messages')}",
    "Producer.transaction": "self, message",
    "Producer.queues": "self, topic",
    "Producer.flush": "self",
    "PushConsumer": (
        "group, *, nameserver=None, allocation='AVG', lease=False, ordered=False, "
        "auto_commit=True, broadcasting=False, start_from='last', client_id=None, batch_size=1, "
        "workers=20, rebalance_interval_s=20.0, pull_idle_limit_s=120.0, **others"
    ),
    "PushConsumer.subscribe": "self, topic, tags='*', sql=None, *, listener=None",
    "PushConsumer.unsubscribe": "self, topic",
    "PushConsumer.start": "self",
    "PushConsumer.stop": "self, drain_s=10.0",
    "PushConsumer.run": "self",
    "PushConsumer.pause": "self, queues=None",
    "PushConsumer.resume": "self, queues=None",
    "PushConsumer.assignment": "self",
    "PushConsumer.on_rebalance": "self, callback",
    "PushConsumer.stats": "self",
    "RetryLater": "delay_level=None, messages=None",
    "DeadLetter": "reason=''",
    "Suspend": "seconds",
    "PullConsumer": "group, *, nameserver=None, allocation='AVG', client_id=None, **others",
    "PullConsumer.queues": "self, topic",
    "PullConsumer.assignment": "self, topic",
    "PullConsumer.pull": "self, queue, offset, max_messages=32, tags='*', wait_s=0.0",
    "PullConsumer.committed": "self, queue",
    "PullConsumer.commit": "self, queue, offset",
    "PullConsumer.on_queues_changed": "self, topic, callback",
    "LitePullConsumer": (
        "group, *, nameserver=None, allocation='AVG', start_from='last', client_id=None, "
        "auto_commit=True, **others"
    ),
    "LitePullConsumer.subscribe": "self, topic, tags='*', sql=None",
    "LitePullConsumer.assign": "self, queues",
    "LitePullConsumer.poll": "self, timeout_s=5.0",
    "LitePullConsumer.seek": "self, queue, offset",
    "LitePullConsumer.pause": "self, queues=None",
    "LitePullConsumer.resume": "self, queues=None",
    "LitePullConsumer.commit": "self",
    "LitePullConsumer.assignment": "self",
    "Admin": "nameserver=None, **others",
    "Admin.topics": "self",
    "Admin.create_topic": "self, topic, queues=8",
    "Admin.route": "self, topic",
    "Admin.groups": "self",
    "Admin.members": "self, group",
    "Admin.assignments": "self, group",
    "Admin.offsets": "self, group, topic",
    "Admin.reset": "self, group, topic, to",
    "Admin.message": "self, which",
    "broker.EmbeddedCluster": "brokers=1, data=None",
    "broker.EmbeddedCluster.kill": "self, name",
    "broker.EmbeddedCluster.restart": "self, name",
    "testing.ApacheRocketMQ": "version='5.5.0', brokers=1, data=None",
    "testing.ApacheRocketMQ.kill": "self, name",
    "testing.ApacheRocketMQ.restart": "self, name",
}
#: Options that every client takes, by any of the classes.
EVERYWHERE = ("access_key", "secret_key", "tls", "address_map", "namespace")
TWICE = ("Producer", "PushConsumer", "PullConsumer", "LitePullConsumer", "Admin")
#: What answers are made of, in this order.
FIELDS = {
    "SendResult": "status message_id offset_message_id queue queue_offset",
    "PullResult": "status messages next_offset minimum maximum",
    "QueueOffsets": "minimum maximum committed",
    "balance.Explanation": "owner rule data sentence",
    "balance.Measures": "moves least_moves spread fairness",
}


def resolve(path):
    value = gimbalmq
    for part in path.split("."):
        value = getattr(value, part)
    return value


def taken(words):
    """The parameters that a list of arguments stands for."""
    return inspect.signature(eval(f"lambda {words}: None")).parameters


def differences(path, words):
    """How the arguments of a name are not as promised."""
    wanted, there = taken(words), inspect.signature(resolve(path)).parameters
    for name, one in wanted.items():
        if one.kind is one.VAR_KEYWORD:
            if not any(other.kind is other.VAR_KEYWORD for other in there.values()):
                yield "takes no further options"
            continue
        found = there.get(name)
        if found is None or found.kind is not one.kind or found.default != one.default:
            yield f"{one} is {found}"
    by_place = [name for name, one in wanted.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    if list(there)[: len(by_place)] != by_place:
        yield f"the order is {list(there)}"
    for name in there.keys() - wanted.keys():
        added = there[name]
        if added.default is added.empty and added.kind is not added.VAR_KEYWORD:
            yield f"{name} is needed"


def test_changes_that_calls_notice_are_differences(monkeypatch):
    def changed(queue, message, *, timeout_s=5.0, must): ...

    monkeypatch.setattr(gimbalmq.Producer, "send", changed)
    found = set(differences("Producer.send", "message, *, timeout_s=3.0, selector=None"))
    assert found == {
        "timeout_s=3.0 is timeout_s=5.0",
        "selector=None is None",
        "the order is ['queue', 'message', 'timeout_s', 'must']",
        "queue is needed",
        "must is needed",
    }


@pytest.mark.parametrize("path", PROMISED)
def test_calls_that_are_promised_stay_as_they_are(path):
    assert list(differences(path, PROMISED[path])) == []


@pytest.mark.parametrize("path", [path for path in PROMISED if path.split(".")[0] in TWICE])
def test_the_same_calls_hold_on_a_loop(path):
    assert list(differences(f"aio.{path}", PROMISED[path])) == []


@pytest.mark.parametrize("face", ["", "aio."])
@pytest.mark.parametrize("kind", TWICE)
def test_every_client_takes_the_options_of_all(kind, face):
    group = {} if kind == "Admin" else {"group": "billing"}
    options = {**dict.fromkeys(EVERYWHERE), "tls": False, "address_map": {}}
    resolve(face + kind)(nameserver="127.0.0.1:9876", **group, **options)


@pytest.mark.parametrize("path", FIELDS)
def test_answers_have_the_promised_parts_in_this_order(path):
    assert " ".join(resolve(path).__struct_fields__).startswith(FIELDS[path])


def test_a_queue_is_printed_as_java_prints_it_and_ordered_as_java_orders_it():
    queue = gimbalmq.MessageQueue("orders", "broker-a", 3)
    assert str(queue) == "MessageQueue [topic=orders, brokerName=broker-a, queueId=3]"
    # Java compares UTF-16 code units, so that what lies beyond them comes before U+FFFD.
    names = ["\N{GRINNING FACE}", "\N{REPLACEMENT CHARACTER}"]
    queues = [gimbalmq.MessageQueue(name, "broker-a", 0) for name in names]
    assert sorted(queues) == queues
    with pytest.raises(AttributeError):
        queue.topic = "other"


def test_every_error_of_ours_has_a_code_and_says_whether_to_try_again():
    error = gimbalmq.errors.GimbalError("the broker is busy: try again", code=2, retryable=True)
    assert (error.code, error.retryable) == (2, True)
    assert gimbalmq.errors.GimbalError("what, where, what to do").code is None
