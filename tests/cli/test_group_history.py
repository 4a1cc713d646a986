from __future__ import annotations

import json

import pytest

from cli.admin_stage import owned, run
from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.client.events import EVENTS_TOPIC, EventLog, EventTopic
from waiting import eventually


@pytest.fixture
def keeper(cluster, topic, unique_name, tmp_path):
    """Starts members that keep their history in a file and in a topic."""
    group, log = unique_name("group"), tmp_path / "events.jsonl"
    started = []
    with Producer("events", nameserver=cluster.nameserver) as producer:

        def start(name):
            consumer = PushConsumer(group, nameserver=cluster.nameserver, client_id=name)
            consumer.subscribe(topic, listener=lambda message: None)
            consumer.on_rebalance(EventLog(log, consumer.client_id))
            consumer.on_rebalance(EventTopic(producer, consumer.client_id))
            started.append(consumer)
            return consumer.start()

        start.group, start.log = group, log
        yield start
        for consumer in started:
            consumer.stop()


def history(cluster, group, *arguments):
    said = run(cluster, "group", "history", group, "--json", *arguments)
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def test_history_tells_who_gave_what_to_whom_from_file_and_topic(cluster, topic, keeper):
    ann = keeper("ann")
    eventually(lambda: len(owned(ann, topic)) == 4)
    bob = keeper("bob")
    eventually(lambda: len(owned(ann, topic)) == len(owned(bob, topic)) == 2)
    moved = owned(bob, topic)

    def told(*arguments):
        rows = history(cluster, keeper.group, *arguments)
        return [row for row in rows if row["to"] == bob.client_id and topic in row["queue"]]

    for source in (("--log", str(keeper.log)), ("--topic", EVENTS_TOPIC), ()):
        rows = eventually(lambda one=source: len(found := told(*one)) == 2 and found)
        assert {row["queue"] for row in rows} == {queue.path for queue in moved}
        assert {row["from"] for row in rows} == {ann.client_id}
        assert set(rows[0]) == {"at", "queue", "from", "to", "trigger", "pause_s"}
        # None: the new owner was quicker than the old one.
        assert all(row["pause_s"] is None or 0 <= row["pause_s"] < 20 for row in rows)
    text = run(cluster, "group", "history", keeper.group, "--log", str(keeper.log))
    assert "moves in" in text.out
    later = history(cluster, keeper.group, "--since", "2100-01-01T00:00:00+00:00")
    assert later == []


def test_a_last_line_that_is_still_written_is_left_out(cluster, topic, keeper):
    ann = keeper("ann")
    eventually(lambda: len(owned(ann, topic)) == 4 and keeper.log.exists())
    ann.stop()  # the queues of its retry topic may come later, as one more event
    before = history(cluster, keeper.group, "--log", str(keeper.log))
    assert before
    with keeper.log.open("ab") as log:
        log.write(b'{"at_ms": 12')
    assert history(cluster, keeper.group, "--log", str(keeper.log)) == before
    assert "no move" in run(cluster, "group", "history", "other", "--log", str(keeper.log)).err


def test_what_is_no_history_is_a_failure(cluster, topic, tmp_path):
    missing = run(cluster, "group", "history", "g", "--log", str(tmp_path / "none"))
    assert (missing.code, missing.out) == (2, "")
    assert "cannot be read" in missing.err
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("hello\n")
    assert "not a rebalance event" in run(cluster, "group", "history", "g", "--log", str(wrong)).err
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"hello", tags="rebalance"))
    said = run(cluster, "group", "history", "g", "--topic", topic)
    assert said.code == 2
    assert "@0 is not a rebalance event" in said.err


def test_help_teaches():
    code, out, _ = run(None, "group", "history", "--help")
    assert code == 0
    assert "Examples:" in out


def test_a_topic_that_nobody_told_of_rebalances_is_explained(cluster, group):
    said = run(cluster, "group", "history", group, "--topic", "no-such-events")
    assert (said.code, said.out) == (2, "")
    assert 'give members the option events="no-such-events"' in said.err
