from __future__ import annotations

import json

import pytest

from cli.admin_stage import run


def test_a_topic_is_created_shown_listed_and_deleted(cluster, unique_name):
    name = unique_name("orders")
    code, made, _ = run(cluster, "topic", "create", name, "--queues", "3", "--json")
    assert code == 0
    document = json.loads(made)
    assert set(document) == {"topic", "brokers", "queues"}
    assert document["topic"] == name
    assert document["brokers"] == [
        {
            "name": broker.name,
            "cluster": "DefaultCluster",
            "addresses": {"0": broker.address},
            "read_queues": 3,
            "write_queues": 3,
            "perm": 6,
        }
        for broker in cluster.brokers
    ]
    assert document["queues"][0] == {
        "broker": "broker-a",
        "queue_id": 0,
        "minimum": 0,
        "maximum": 0,
    }
    assert len(document["queues"]) == 6
    assert json.loads(run(cluster, "topic", "show", name, "--json").out) == document
    assert name in json.loads(run(cluster, "topic", "list", "--json").out)
    gone = run(cluster, "topic", "delete", name, "--yes", "--json")
    assert json.loads(gone.out) == {"topic": name, "deleted": True, "messages": 0}
    assert name not in json.loads(run(cluster, "topic", "list", "--json").out)


def test_options_choose_brokers_and_permission(cluster, unique_name):
    name = unique_name("archive")
    options = ["--queues", "1", "--broker", "broker-b", "--perm", "r", "--order", "--json"]
    document = json.loads(run(cluster, "topic", "create", name, *options).out)
    assert [(one["name"], one["perm"]) for one in document["brokers"]] == [("broker-b", 4)]


def test_people_get_tables(cluster, topic):
    shown = run(cluster, "topic", "show", topic)
    assert (shown.code, shown.err) == (0, "")
    assert f"Topic {topic}" in shown.out
    assert "RW-" in shown.out
    assert topic in run(cluster, "topic", "list").out
    assert "TBW102" not in run(cluster, "topic", "list").out
    assert "TBW102" in run(cluster, "topic", "list", "--all").out


def test_deleting_asks_first(cluster, topic, monkeypatch):
    refused = run(cluster, "topic", "delete", topic)
    assert (refused.code, refused.out) == (2, "")
    assert "add --yes" in refused.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in ((False, 2), (True, 0)):
        monkeypatch.setattr("click.confirm", lambda *_, answer=answer, **__: answer)
        assert run(cluster, "topic", "delete", topic).code == code
        assert (topic in run(cluster, "topic", "list").out) is (code == 2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topic", "show", "no-such-topic"], "topic 'no-such-topic' does not exist"),
        (["topic", "delete", "no-such-topic", "--yes"], "gimbalmq topic list"),
        (["topic", "show", ""], "'' is no topic name"),
        (["topic", "create", "no topic"], "is no topic name"),
        (["topic", "create", "x", "--broker", "broker-x"], "there is no broker 'broker-x'"),
        (["topic", "create", "x", "--queues", "0"], "--queues"),
    ],
)
def test_failures_are_two_and_one_clear_line(cluster, arguments, complaint):
    code, out, err = run(cluster, *arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err


def test_without_a_name_server_the_command_says_what_to_do(monkeypatch, capsys):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    code, _, err = run(None, "topic", "list")
    assert code == 2
    assert "NAMESRV_ADDR" in err


def test_the_name_server_may_come_from_the_environment(cluster, topic, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", cluster.nameserver)
    assert topic in json.loads(run(None, "topic", "list", "--json").out)


@pytest.mark.parametrize("command", [(), ("list",), ("create",), ("show",), ("delete",)])
def test_help_teaches(command):
    code, out, _ = run(None, "topic", *command, "--help")
    assert code == 0
    assert ("Example" in out) or ("JSON" in out)
