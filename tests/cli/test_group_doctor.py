"""Faults planted on a running cluster: the doctor finds each of them, and nothing on a healthy group."""

from __future__ import annotations

import json
import threading

import pytest

from cli.admin_stage import owned, run
from gimbalmq import Message, Producer
from gimbalmq.client.admin import Admin
from gimbalmq.flows.lock import lock
from gimbalmq.flows.offset import store_offset
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from sharing import noticed, shared_out
from waiting import eventually


@pytest.fixture
def settle(cluster, group, topic):
    """Waits until the topic's queues have one owner each, and all members agree on it."""

    def wait(*members, queues=4):
        with Admin(cluster.nameserver) as admin:
            eventually(lambda: shared_out(admin, group, topic, members, queues))

    return wait


def caught_up(cluster, group, topic):
    """Wait until everything is consumed, and stored as consumed."""
    with Admin(cluster.nameserver) as admin:
        eventually(lambda: {one.lag for one in admin.offsets(group, topic).values()} == {0})


def doctor(cluster, group):
    said = run(cluster, "group", "doctor", group, "--interval", "0.5", "--json")
    assert said.err == ""
    document = json.loads(said.out)
    assert said.code == (0 if document["healthy"] else 1)
    assert [set(one) for one in document["findings"]] == [
        {"code", "severity", "queues", "members", "message", "action"}
    ] * len(document["findings"])
    return {one["code"]: one for one in document["findings"]}


def send(cluster, topic, count=12):
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_healthy_group_is_healthy(cluster, group, topic, member, ordered, settle):
    send(cluster, topic)
    members = [member("ann", ordered=ordered), member("bob", ordered=ordered)]
    settle(*members)
    caught_up(cluster, group, topic)
    assert doctor(cluster, group) == {}
    text = run(cluster, "group", "doctor", group, "--interval", "0.2")
    assert (text.code, text.out) == (0, f"group '{group}' is healthy\n")


def test_a_group_that_left_is_told(cluster, group, topic, member):
    send(cluster, topic)
    one = member("ann")
    eventually(lambda: one.stats().consumed == 12)
    one.stop()
    send(cluster, topic, 3)
    assert "3 messages wait" in doctor(cluster, group)["NO_MEMBERS"]["message"]


def test_unequal_subscriptions_are_found(cluster, group, topic, member, settle):
    ann, bob = member("ann"), member("bob", tags="paid")
    settle(ann, bob)
    assert doctor(cluster, group).keys() == {"UNEQUAL_SUBSCRIPTIONS"}


def test_mixed_strategies_are_found_with_the_queues_they_spoil(cluster, group, topic, member):
    ann, bob = member("ann"), member("bob", allocation="AVG_BY_CIRCLE")
    first, second, _, last = sorted(
        MessageQueue(topic, broker.name, number) for broker in cluster.brokers for number in (0, 1)
    )
    with Admin(cluster.nameserver) as admin:
        eventually(
            lambda: (
                owned(ann, topic) == {first, second}
                and owned(bob, topic) == {second, last}
                and noticed(admin, group, first)
            )
        )
    found = doctor(cluster, group)
    assert found.keys() == {"MIXED_STRATEGIES", "QUEUE_UNOWNED", "QUEUE_DOUBLY_OWNED"}
    assert len(found["QUEUE_UNOWNED"]["queues"]) == 1


def test_strategies_of_ours_that_differ_fall_back_together_and_are_told(
    cluster, group, topic, member, settle
):
    ann, bob = member("ann", allocation="CAPPED_HASH"), member("bob", allocation="CROSS_TOPIC")
    settle(ann, bob)
    found = doctor(cluster, group)
    assert {code: one["severity"] for code, one in found.items()} == {"MIXED_STRATEGIES": "warning"}


def test_more_members_than_queues_are_found(cluster, group, topic, member, settle):
    members = [member(f"member-{number}") for number in range(5)]
    settle(*members)
    found = doctor(cluster, group)
    assert found.keys() == {"IDLE_MEMBERS"}
    assert found["IDLE_MEMBERS"]["members"] == [members[4].client_id]


def test_a_listener_that_hangs_is_found(cluster, group, topic, member, settle):
    end, busy = threading.Event(), []

    def hang(message):
        busy.append(message.queue)
        end.wait(60.0)

    one = member("ann", listener=hang)
    settle(one)
    send(cluster, topic)
    with Admin(cluster.nameserver) as admin:
        held = {queue for queue, one in admin.offsets(group, topic).items() if one.maximum}
    assert held
    eventually(lambda: set(busy) == held)
    try:
        found = doctor(cluster, group)
    finally:
        end.set()
    assert found.keys() == {"OFFSET_STUCK"}
    assert set(found["OFFSET_STUCK"]["queues"]) == {queue.path for queue in held}


def test_an_offset_beyond_the_end_is_found(cluster, group, topic, member, settle):
    one = member("ann")
    settle(one)
    one.stop()
    queue = MessageQueue(topic, "broker-a", 0)
    address = next(broker.address for broker in cluster.brokers if broker.name == "broker-a")
    pool = ConnectionPool()
    run_inline(store_offset(address, group, queue, 99), pool)
    pool.close()
    found = doctor(cluster, group)
    assert found["OFFSET_JUMPED"]["queues"] == [queue.path]


def test_a_lock_that_a_stranger_holds_is_found(cluster, group, topic, member, settle):
    queue = MessageQueue(topic, "broker-a", 0)
    address = next(broker.address for broker in cluster.brokers if broker.name == "broker-a")
    pool = ConnectionPool()  # the embedded broker releases locks with the connection
    assert run_inline(lock(address, group, "10.0.0.9@dead", [queue]), pool)
    try:
        one = member("ann", ordered=True)
        settle(one, queues=3)
        found = doctor(cluster, group)
        assert found.keys() == {"LOCK_HELD_BY_DEAD"}
        assert found["LOCK_HELD_BY_DEAD"]["queues"] == [queue.path]
        text = run(cluster, "group", "doctor", group, "--interval", "0.2")
        assert text.code == 1
        assert "ERROR LOCK_HELD_BY_DEAD" in text.out
        assert "do:" in text.out
        unprobed = run(cluster, "group", "doctor", group, "--interval", "0.2", "--no-probe")
        assert "QUEUE_UNOWNED" in unprobed.out
    finally:
        pool.close()
    settle(one)
    assert doctor(cluster, group) == {}, "the probe has left no lock behind"


def test_an_unknown_group_is_a_failure_and_not_a_finding(cluster):
    said = run(cluster, "group", "doctor", "no-such-group")
    assert (said.code, said.out) == (2, "")
    assert "no broker knows group" in said.err


# ---- guard -----------------------------------------------------------------------------------


def test_the_guard_leaves_our_own_groups_to_themselves(cluster, group, topic, member, settle):
    settle(member("ann"))
    said = run(cluster, "group", "guard", group, "--for", "0.3", "--json")
    assert said.code == 0
    deeds = [json.loads(line) for line in said.out.splitlines()]
    assert [one["kind"] for one in deeds] == ["watching", "refuse"]
    assert set(deeds[0]) == {"at", "group", "kind", "members", "reason", "done", "failures"}
    text = run(cluster, "group", "guard", group, "--for", "0.3")
    assert "take over from each other by themselves" in text.out


def test_a_guard_of_a_group_that_nobody_knows_says_so_and_waits(cluster, group):
    said = run(cluster, "group", "guard", group, "--for", "0.3", "--json")
    assert said.code == 0
    assert f"no broker knows group '{group}'" in said.err
    assert "waiting for its first member" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--grace", "1"], "too short"), (["--old-grace", "10"], "next heartbeat")],
)
def test_a_grace_time_that_cannot_be_safe_is_refused(cluster, group, arguments, words):
    said = run(cluster, "group", "guard", group, "--for", "0.3", *arguments)
    assert (said.code, said.out) == (2, "")
    assert words in said.err


@pytest.mark.parametrize("command", ["doctor", "guard"])
def test_help_teaches(command):
    code, out, _ = run(None, "group", command, "--help")
    assert code == 0
    assert "Examples:" in out
    assert "JSON" in out
