"""Commands that change a group or say what would change: explain --without, reset, dead letters."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from cli.admin_stage import owned, run
from gimbalmq import DeadLetter, Message, Producer, balance
from gimbalmq.client.admin import Admin
from gimbalmq.client.dead_letters import DeadLetters
from sharing import shared_out
from waiting import eventually


@pytest.fixture
def topic(topic, cluster):
    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in range(12):
            producer.send(Message(topic, b"%d" % number, keys=[f"key-{number}"]))
    return topic


# ---- explain ---------------------------------------------------------------------------------


def test_explain_tells_what_would_change_without_a_member(cluster, group, topic, member):
    ann, bob = member("ann"), member("bob")
    with Admin(cluster.nameserver) as admin:
        eventually(lambda: shared_out(admin, group, topic, (ann, bob), 4))
    queue = min(owned(bob, topic))
    said = run(cluster, "group", "explain", group, queue.path, "--without", "bob", "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert document["owner"] == bob.client_id
    without = document["without"]
    assert (without["members"], without["owner"]) == ([bob.client_id], ann.client_id)
    moved = [one for one in without["moves"] if one["queue"].startswith(topic)]
    assert moved == [
        {"queue": one.path, "from": bob.client_id, "to": ann.client_id}
        for one in sorted(owned(bob, topic))
    ]
    queues = owned(ann, topic) | owned(bob, topic)
    left = balance.explain("AVG", queue=queue, queues=queues, members=[ann.client_id])
    assert without["sentence"] == left.sentence
    text = run(cluster, "group", "explain", group, queue.path, "--without", bob.client_id)
    assert f"Without {bob.client_id}" in text.out
    plain = json.loads(run(cluster, "group", "explain", group, queue.path, "--json").out)
    assert plain["without"] is None


def test_explain_without_a_stranger_or_everybody_is_refused(cluster, group, topic, member):
    ann = member("ann")
    eventually(lambda: len(owned(ann, topic)) == 4)
    path = min(owned(ann, topic)).path
    said = run(cluster, "group", "explain", group, path, "--without", "zoe")
    assert (said.code, "'zoe' is no member" in said.err) == (2, True)
    said = run(cluster, "group", "explain", group, path, "--without", "ann")
    assert (said.code, "nobody is left" in said.err) == (2, True)


def test_a_running_group_is_the_start_of_a_simulation(cluster, group, topic, member):
    ann, bob = member("west-ann"), member("east-bob")
    eventually(lambda: len(owned(ann, topic)) == len(owned(bob, topic)) == 2)
    arguments = ["balance", "simulate", "--group", group, "--then", "+2,restart"]
    said = run(cluster, *arguments, "--strategy", "AVG,CAPPED_HASH", "--json")
    assert said.code == 0, said.err
    steps = json.loads(said.out)["steps"]
    assert [(one["event"], one["strategy"]) for one in steps] == [
        (event, name) for event in ("+2", "restart") for name in ("AVG", "CAPPED_HASH")
    ]
    assert {one["spread"] for one in steps} == {0}
    text = run(cluster, *arguments)
    assert f"Group {group}: 4 queues, 2 members" in text.out
    assert "ZONED needs --zone" in text.err
    zoned = run(cluster, *arguments, "--strategy", "ZONED", "--zone", "prefix:-", "--json")
    assert zoned.code == 0, zoned.err
    nobody = run(cluster, "balance", "simulate", "--group", "no-such-group")
    assert (nobody.code, "no broker knows group" in nobody.err) == (2, True)


def test_a_group_that_is_mistyped_is_guessed(cluster, group, member):
    member("ann")
    for command in ("show", "doctor", "dead-letters"):
        said = run(cluster, "group", command, group[:-1])
        assert (said.code, said.out) == (2, "")
        assert f"no broker knows group '{group[:-1]}': did you mean '{group}'?" in said.err
    gone = run(cluster, "balance", "simulate", "--group", group[:-1])
    assert (gone.code, f"did you mean '{group}'?" in gone.err) == (2, True)


# ---- reset -----------------------------------------------------------------------------------


def test_a_dry_run_of_a_reset_shows_where_it_leads_and_changes_nothing(
    cluster, group, topic, member
):
    one = member("ann")
    with Admin(cluster.nameserver) as admin:
        eventually(lambda: {it.lag for it in admin.offsets(group, topic).values()} == {0})
        one.stop()
        before = admin.offsets(group, topic)
        for where, expected in (("earliest", 0), ("latest", 12)):
            arguments = ["group", "reset", group, topic, "--to", where, "--dry-run"]
            document = json.loads(run(cluster, *arguments, "--json").out)
            assert document["dry_run"] is True
            assert sum(row["after"] for row in document["queues"]) == expected
            assert "(dry run)" in run(cluster, *arguments).out
        assert admin.offsets(group, topic) == before


# ---- dead letters ----------------------------------------------------------------------------


def dead_letters(cluster, group, *arguments):
    said = run(cluster, "group", "dead-letters", group, "--json", *arguments)
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def test_dead_letters_are_listed_and_given_to_the_group_again(cluster, group, topic, member):
    got, bury = [], [True]

    def listener(message):
        if bury[0] and message.body in {b"3", b"7"}:
            raise DeadLetter("for the test")
        got.append((message.body, message.topic, message.reconsume_times))

    member("ann", listener=listener)
    found = eventually(lambda: len(rows := dead_letters(cluster, group)) == 2 and rows)
    assert {row["body"] for row in found} == {"3", "7"}
    assert {tuple(row["keys"]) for row in found} == {("key-3",), ("key-7",)}
    refused = run(cluster, "group", "dead-letters", group, "--redrive")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    bury[0] = False
    driven = dead_letters(cluster, group, "--redrive", "--yes")
    assert {row["redriven"] for row in driven} == {True}
    eventually(lambda: {body for body, *_ in got} >= {b"3", b"7"})
    again = [one for one in got if one[0] in {b"3", b"7"}]
    assert {where for _, where, _ in again} == {topic}, "as if it came from its own topic"
    assert {times for *_, times in again} == {0}
    assert dead_letters(cluster, group) == [], "what was re-driven is not listed again"
    assert len(dead_letters(cluster, group, "--all")) == 2
    text = run(cluster, "group", "dead-letters", group, "--all")
    assert "2 dead letters" in text.err


def test_single_dead_letters_are_re_driven_and_the_others_stay_listed(
    cluster, group, topic, member
):
    got, bury = [], [True]

    def listener(message):
        if bury[0]:
            raise DeadLetter("for the test")
        got.append(message.body)

    member("ann", listener=listener)
    found = eventually(lambda: len(rows := dead_letters(cluster, group)) == 12 and rows)
    bury[0] = False
    chosen = next(row for row in found if row["queue_offset"] > 0)
    dead_letters(cluster, group, "--redrive", "--yes", "--id", chosen["message_id"])
    eventually(lambda: got == [chosen["body"].encode()])
    assert len(dead_letters(cluster, group)) == 12, "one out of the middle leaves no mark"
    unknown = run(cluster, "group", "dead-letters", group, "--id", "nonsense")
    assert (unknown.code, "no dead letter of" in unknown.err) == (2, True)


def test_dead_letters_of_a_broker_that_has_just_got_its_first_are_listed(
    cluster, group, topic, member
):
    def bury(message):
        raise DeadLetter("for the test")

    class EarlyLook(Admin):
        """Asked for offsets, one broker did not have the topic yet."""

        def offsets(self, group, topic):
            found = super().offsets(group, topic)
            late = max(queue.broker for queue in found)
            return {queue: one for queue, one in found.items() if queue.broker != late}

    member("ann", listener=bury)
    eventually(lambda: len(dead_letters(cluster, group)) == 12)
    with EarlyLook(cluster.nameserver) as admin:
        assert len(list(DeadLetters(admin, group).waiting())) == 12


def test_a_group_that_never_failed_has_no_dead_letters(cluster, group, topic, member):
    one = member("ann")
    eventually(lambda: len(owned(one, topic)) == 4)
    assert dead_letters(cluster, group) == []
    with Admin(cluster.nameserver) as admin:
        assert list(DeadLetters(admin, group).waiting()) == []
    assert run(cluster, "group", "dead-letters", "no-such-group").code == 2


@pytest.mark.parametrize("command", ["explain", "reset", "dead-letters"])
def test_help_teaches(command):
    code, out, _ = run(None, "group", command, "--help")
    assert code == 0
    assert "Examples:" in out


def test_a_time_without_zone_is_asked_for_as_it_was_understood(cluster, group, topic, member):
    member("ann")
    said = run(cluster, "group", "reset", group, topic, "--to", "2026-03-01T12:00:00")
    assert said.code == 2
    meant = datetime.fromisoformat("2026-03-01T12:00:00").astimezone().isoformat()
    assert f"to {meant}?" in said.err
    wrong = run(cluster, "group", "reset", group, topic, "--to", "yesterday")
    assert "write earliest, latest, or a time like" in wrong.err


@pytest.mark.parametrize("text", ["broker-a=1", "broker-a/0", "broker-a/0=x", "broker-a/x=1", "=1"])
def test_an_offset_that_names_no_queue_is_refused_with_an_example(cluster, group, text):
    said = run(cluster, "group", "reset", group, "orders", "--offset", text, "--yes")
    assert (said.code, said.out) == (2, "")
    assert "write BROKER/QUEUE=OFFSET, for example broker-a/0=120" in said.err
