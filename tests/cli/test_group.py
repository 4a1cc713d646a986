from __future__ import annotations

import json

import pytest

from cli.admin_stage import owned, run
from gimbalmq import Message, Producer, balance
from gimbalmq.client.admin import Admin
from gimbalmq.model.queue import parse_queue
from gimbalmq.runtime.member_answers import MemberAnswers
from gimbalmq.wire.codes import RequestCode
from sharing import agreed
from waiting import eventually


@pytest.fixture
def topic(topic, cluster):
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(12):
            producer.send(Message(topic, b"%d" % number))
    return topic


def settle(cluster, group, members, topic):
    """Waits until the topic's queues are shared out, and none of any topic has two owners."""

    def whole():
        held = [queue for one in members for queue in one.assignment()]
        shares = [owned(one, topic) for one in members]
        return all(shares) and sum(map(len, shares)) == 4 and len(held) == len(set(held))

    with Admin(cluster.nameserver) as admin:
        eventually(
            lambda: (
                whole() and agreed(admin, group, [q for one in members for q in owned(one, topic)])
            )
        )


def show(cluster, group):
    said = run(cluster, "group", "show", group, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_show_tells_members_owners_and_lag(cluster, group, topic, member):
    members = [member("ann"), member("bob")]
    settle(cluster, group, members, topic)
    eventually(lambda: {one["lag"] for one in show(cluster, group)["queues"]
                        if one["topic"] == topic} == {0})  # fmt: skip
    document = show(cluster, group)
    assert set(document) == {"group", "members", "queues"}
    assert document["group"] == group
    assert document["members"] == [
        {"client_id": one.client_id, "language": "PYTHON", "version": "5.3.3", "strategy": "AVG"}
        for one in members
    ]
    rows = document["queues"]
    assert [set(row) for row in rows] == [
        {"topic", "broker", "queue_id", "owner", "committed", "minimum", "maximum", "lag"}
    ] * 6
    assert sum(row["maximum"] for row in rows if row["topic"] == topic) == 12
    for one in members:
        shown = {
            parse_queue(f"{row['topic']}/{row['broker']}/{row['queue_id']}")
            for row in rows
            if row["owner"] == one.client_id and row["topic"] == topic
        }
        assert shown == owned(one, topic)
    text = run(cluster, "group", "show", group)
    assert (text.code, text.err) == (0, "")
    assert "2 members" in text.out


def test_show_of_a_group_that_left_has_progress_and_no_owner(cluster, group, topic, member):
    one = member("ann")
    settle(cluster, group, [one], topic)
    # A member that stops before its first message leaves no trace.
    eventually(lambda: {row["committed"] for row in show(cluster, group)["queues"]
                        if row["topic"] == topic} == {3})  # fmt: skip
    one.stop()
    document = show(cluster, group)
    assert document["members"] == []
    rows = [row for row in document["queues"] if row["topic"] == topic]
    assert len(rows) == 4
    assert {row["owner"] for row in rows} == {None}
    assert group in json.loads(run(cluster, "group", "list", "--json").out)
    assert group in run(cluster, "group", "list").out


def test_show_goes_on_when_a_member_does_not_answer(cluster, group, topic, member, monkeypatch):
    ann, bob = members = [member("ann"), member("bob")]
    settle(cluster, group, members, topic)
    plain = MemberAnswers.answer

    def silent(self, request, reply):
        is_ann = request.fields.get("clientId") == ann.client_id
        asked = request.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        return False if asked and is_ann else plain(self, request, reply)

    monkeypatch.setattr(MemberAnswers, "answer", silent)
    said = run(cluster, "group", "show", group, "--json")
    rows = [row for row in json.loads(said.out)["queues"] if row["topic"] == topic]
    assert [row["owner"] for row in rows].count(bob.client_id) == len(owned(bob, topic))
    assert {row["owner"] for row in rows} == {None, bob.client_id}
    assert f"'{ann.client_id}' did not answer" in said.err
    text = run(cluster, "group", "show", group).out
    counts = {}
    for line in text.partition("Queues")[0].splitlines():
        cells = [cell.strip() for cell in line.split("│")]
        counts[cells[1] if len(cells) > 1 else ""] = cells[-2] if len(cells) > 1 else ""
    assert counts[ann.client_id] == "-", "not 0, which is not known"
    assert int(counts[bob.client_id]) >= 2


def test_a_broadcasting_group_has_no_owners(cluster, group, topic, member, tmp_path):
    member("ann", broadcasting=True, local_offset_store_dir=tmp_path)
    said = eventually(
        lambda: (found := run(cluster, "group", "show", group, "--json")).code == 0 and found
    )
    assert "broadcasts" in said.err
    assert {row["owner"] for row in json.loads(said.out)["queues"]} == {None}
    said = run(cluster, "group", "explain", group, f"{topic}/broker-a/0")
    assert said.code == 2
    assert "broadcasts" in said.err


@pytest.mark.parametrize("allocation", ["AVG", "AVG_BY_CIRCLE"])
def test_explain_names_the_real_owner_and_the_rule(cluster, group, topic, member, allocation):
    members = [member(name, allocation=allocation) for name in ("ann", "bob")]
    settle(cluster, group, members, topic)
    queues = [queue for one in members for queue in owned(one, topic)]
    for queue in queues:
        said = run(cluster, "group", "explain", group, queue.path, "--json")
        assert (said.code, said.err) == (0, "")
        document = json.loads(said.out)
        expected = balance.explain(
            allocation, queue=queue, queues=queues, members=[one.client_id for one in members]
        )
        holder = next(one.client_id for one in members if queue in one.assignment())
        assert document == {
            "queue": queue.path,
            "owner": expected.owner,
            "rule": allocation,
            "data": expected.data,
            "sentence": expected.sentence,
            "holders": [holder],
            "told_by": holder,
            "absent": {},
            "weights": None,
            "fallback": "",
            "differences": [],
            "unknown": [],
            "without": None,
        }
        assert document["owner"] == holder
    text = run(cluster, "group", "explain", group, queues[0].path)
    assert text.out.startswith(queues[0].path)
    other = ["--strategy", "CONSISTENT_HASH", "--json"]
    said = run(cluster, "group", "explain", group, queues[0].path, *other)
    other = json.loads(said.out)
    assert (other["rule"], other["told_by"]) == ("CONSISTENT_HASH", None)
    assert f"what CONSISTENT_HASH would give; the members use {allocation}" in other["sentence"]


def test_reset_moves_the_group_and_tells_from_where(cluster, group, topic, member):
    one = member("ann")
    eventually(lambda: {row["lag"] for row in show(cluster, group)["queues"]
                        if row["topic"] == topic} == {0})  # fmt: skip
    one.stop()
    arguments = ["group", "reset", group, topic]
    refused = run(cluster, *arguments, "--to", "earliest")
    assert (refused.code, refused.out) == (2, "")
    assert "add --yes" in refused.err
    document = json.loads(run(cluster, *arguments, "--to", "earliest", "--yes", "--json").out)
    assert (document["group"], document["topic"]) == (group, topic)
    assert [set(row) for row in document["queues"]] == [
        {"broker", "queue_id", "before", "after"}
    ] * 4
    assert sum(row["before"] for row in document["queues"]) == 12
    assert {row["after"] for row in document["queues"]} == {0}
    single = ["--offset", "broker-a/1=1", "--yes", "--json"]
    document = json.loads(run(cluster, *arguments, *single).out)
    assert document["queues"] == [{"broker": "broker-a", "queue_id": 1, "before": 0, "after": 1}]
    later = ["--to", "2100-01-01T00:00:00+00:00", "--yes"]
    assert run(cluster, *arguments, *later).code == 0
    assert {row["lag"] for row in show(cluster, group)["queues"] if row["topic"] == topic} == {0}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show", "no-such-group"], "no broker knows group 'no-such-group'"),
        (["explain", "no-such-group", "t/b/0"], "no broker knows group"),
        (["explain", "g", "nonsense"], "is not a queue"),
        (["reset", "no-such-group", "TBW102", "--to", "latest", "--yes"], "no broker knows group"),
        (["reset", "g", "t"], "either --to or --offset"),
        (["reset", "g", "t", "--to", "latest", "--offset", "b/0=1"], "either --to or --offset"),
        (["reset", "g", "t", "--to", "noon"], "is no time"),
        (["reset", "g", "t", "--offset", "b/0"], "BROKER/QUEUE=OFFSET"),
    ],
)
def test_failures_are_two_and_say_what_is_wrong(cluster, arguments, complaint):
    code, out, err = run(cluster, "group", *arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err


def test_explain_says_when_nobody_shares_the_queue(cluster, group, topic, member):
    one = member("ann")
    settle(cluster, group, [one], topic)
    said = run(cluster, "group", "explain", group, "TBW102/broker-a/0")
    assert said.code == 2
    assert "does not subscribe to topic 'TBW102'" in said.err
    one.stop()
    said = run(cluster, "group", "explain", group, f"{topic}/broker-a/0")
    assert said.code == 2
    assert "has no member now" in said.err


@pytest.mark.parametrize("command", [(), ("list",), ("show",), ("explain",), ("reset",)])
def test_help_teaches(command):
    code, out, _ = run(None, "group", *command, "--help")
    assert code == 0
    assert ("Examples:" in out) or ("JSON" in out)
