"""Simulations that begin with a running group: whose weights they use, and what they say of them."""

from __future__ import annotations

import json

import pytest

from cli.admin_stage import owned, run
from gimbalmq import Admin, Message, Producer, balance
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.weights import QueueWeights
from gimbalmq.runtime.member_answers import MemberAnswers
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.weights import encode_weights
from sharing import shared_out
from waiting import eventually


@pytest.fixture
def loads(cluster, unique_name):
    """A weights topic of its own."""
    name = unique_name("loads")
    cluster.create_topic(name, queues=1, brokers=["broker-a"])
    return name


@pytest.fixture
def readers(cluster, group, member, topic, loads):
    """Two members that read published weights."""
    strategy = balance.strategy("WEIGHTED", weights="published", weights_topic=loads)
    options = {"allocation": strategy, "lease": True, "weights_interval_s": 0.1}
    members = [member(name, topic, **options) for name in ("ann", "bob")]
    with Admin(cluster.nameserver) as admin:
        eventually(lambda: shared_out(admin, group, topic, members, 4))
    return members


def publish(cluster, loads, version, topic, weights):
    document = QueueWeights(version, topic, 0, weights)
    with Producer("load-profile", nameserver=cluster.nameserver) as producer:
        producer.send(Message(loads, encode_weights(document)))


def simulate(cluster, group, *more):
    arguments = ("balance", "simulate", "--group", group, "--strategy", "WEIGHTED", *more)
    said = run(cluster, *arguments, "--json")
    assert (said.code, said.err) == (0, "")
    document = json.loads(said.out)
    text = run(cluster, *arguments)
    assert (text.code, text.err) == (0, "")
    told = [line for line in text.out.splitlines() if line.startswith("weights: ")]
    return document["steps"][0], document.get("weights"), told


def test_published_weights_are_used_and_their_version_is_named(
    cluster, group, topic, loads, readers, tmp_path
):
    step, weights, told = simulate(cluster, group)
    assert step["spread"] == 0
    assert weights == {"source": "published", "topic": loads, "versions": {}}
    assert told == [f"weights: published, none yet in topic '{loads}': every queue counts 1"]

    heavy = MessageQueue(topic, "broker-a", 0)
    publish(cluster, loads, 7, topic, {heavy.path: 50.0})
    publish(cluster, loads, 9, "another", {"another/broker-a/0": 50.0})
    step, weights, told = simulate(cluster, group)
    assert step["spread"] == 2, "the heavy queue stands alone"
    assert weights == {"source": "published", "topic": loads, "versions": {topic: 7}}
    assert told == ["weights: published, version 7"]
    eventually(lambda: {len(owned(one, topic)) for one in readers} == {1, 3})

    file = tmp_path / "weights.json"
    file.write_text(json.dumps({"weights": {heavy.path: 1.0}}))
    step, weights, told = simulate(cluster, group, "--weights", str(file))
    assert step["spread"] == 0, "what is given by hand goes first"
    assert weights == {"source": "file", "file": str(file)}
    assert told == [f"weights: {file}"]

    file.write_text(json.dumps({"capacities": {"ann": 1.0}}))
    step, weights, told = simulate(cluster, group, "--weights", str(file))
    assert step["spread"] == 2, "capacities alone leave the weights as they are"
    assert told == ["weights: published, version 7"]


def test_the_versions_of_several_topics_are_told_apart(
    cluster, group, topic, loads, member, unique_name
):
    other = unique_name("topic")
    cluster.create_topic(other, queues=1)
    strategy = balance.strategy("WEIGHTED", weights="published", weights_topic=loads)
    member("ann", topic, other, allocation=strategy, lease=True)
    for version, one in enumerate((topic, other), start=3):
        publish(cluster, loads, version, one, {f"{one}/broker-a/0": 2.0})
    _, weights, told = simulate(cluster, group)
    assert weights["versions"] == {topic: 3, other: 4}
    assert told == [f"weights: published, version 3 of {topic}, version 4 of {other}"]


@pytest.mark.usefixtures("readers")
def test_where_nobody_says_where_the_weights_are_they_are_not_made_up(cluster, group, monkeypatch):
    plain = MemberAnswers.answer

    def silent(self, request, reply):
        asked = request.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        return False if asked else plain(self, request, reply)

    monkeypatch.setattr(MemberAnswers, "answer", silent)
    arguments = ("balance", "simulate", "--group", group)
    everything = run(cluster, *arguments, "--json")
    assert everything.code == 0
    assert "left out: WEIGHTED needs --weights" in everything.err
    assert "WEIGHTED" not in {one["strategy"] for one in json.loads(everything.out)["steps"]}
    named = run(cluster, *arguments, "--strategy", "WEIGHTED")
    assert (named.code, named.out) == (2, "")
    assert "none of them answered" in named.err


def test_weights_that_members_have_configured_are_said_to_be_unknown(
    cluster, group, topic, member, tmp_path
):
    heavy = f"{topic}/broker-a/0"
    ann = member("ann", allocation=balance.strategy("WEIGHTED", weights={heavy: 9.0}))
    eventually(lambda: len(owned(ann, topic)) == 4)
    _, weights, (told,) = simulate(cluster, group)
    assert weights is None
    assert "cannot be seen from here: every queue counts 1" in told
    file = tmp_path / "weights.json"
    file.write_text(json.dumps({"weights": {heavy: 9.0}}))
    assert simulate(cluster, group, "--weights", str(file))[2] == [f"weights: {file}"]
