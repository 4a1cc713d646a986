"""The examples that `gimbalmq pipeline run --help` shows, on the Spark of the other tests."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from cli.admin_stage import run
from cli.help_examples import run_by
from gimbalmq import Admin, DeadLetter, Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.spark import session
from waiting import eventually

#: What each pipeline says of the two messages in `orders`, of which one is paid and one is dead.
EXPECTED = {
    "archive": {"added": 2},
    "transform": {"read": 2},
    "load-profile": {"messages": 2},
    "replay": {"messages": 1, "dry_run": True},
}


@pytest.fixture(scope="module")
def cluster():
    """What the examples name: topics `orders` and `paid`, and group `shop` with a dead letter."""

    def listen(message):
        if message.tags == "paid":
            raise DeadLetter("for the examples")

    with EmbeddedCluster(brokers=1, processes=True) as cluster:
        for topic in ("orders", "paid"):
            cluster.create_topic(topic, queues=2)
        with Producer("tills", nameserver=cluster.nameserver) as producer:
            producer.send(Message("orders", b"1", tags="paid", keys=["a"]))
            producer.send(Message("orders", b"2", tags="open", keys=["b"]))
        consumer = PushConsumer("shop", nameserver=cluster.nameserver, start_from="first")
        consumer.subscribe("orders", listener=listen)
        with consumer, Admin(cluster.nameserver) as admin:
            eventually(lambda: "%DLQ%shop" in admin.topics(internal=True))
            eventually(lambda: list(admin.tail("%DLQ%shop", start_from="first", follow=False)))
        yield cluster


@pytest.mark.parametrize("line", run_by("on Spark"))
def test_an_example_does_what_it_says(line, spark, cluster, tmp_path, monkeypatch):
    # The session of all tests is taken and left running: to start another one takes long.
    monkeypatch.setattr(session, "local_session", lambda *_arguments, **_options: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _session: None)
    # Its Java has another folder than this test, so files are named in full.
    _, *words = [re.sub("^(path|checkpoint|html)=", rf"\g<0>{tmp_path}/", word)
                 for word in shlex.split(line)]  # fmt: skip
    said = run(cluster, *words, "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert document["pipeline"] == words[2]
    assert EXPECTED[words[2]].items() <= document["facts"].items(), document
    files = [word.partition("=")[2] for word in words if f"={tmp_path}/" in word]
    assert all(Path(file).exists() for file in files)
