from __future__ import annotations

import io
import itertools
import json
import signal
import sys
import threading

import pytest

from cli.admin_stage import run
from gimbalmq import Message, Producer
from gimbalmq.cli import message as message_command

MESSAGE = {
    *("topic", "broker", "queue_id", "queue_offset", "message_id", "offset_message_id", "tags"),
    *("keys", "properties", "born_at", "stored_at", "born_host", "reconsume_times"),
    *("body", "body_encoding"),
}


def send(cluster, topic, *arguments):
    code, out, err = run(cluster, "message", "send", topic, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def shown(said):
    assert (said.code, said.err) == (0, "")
    return [json.loads(line) for line in said.out.splitlines()]


def test_a_sent_message_is_shown_by_both_ids_and_by_key(cluster, topic):
    options = ["--key", "42", "--key", "43", "--tag", "paid", "--property", "shop=a=b"]
    sent = send(cluster, topic, '{"id": 42}', *options)
    assert set(sent) == {
        *("status", "topic", "broker", "queue_id", "queue_offset"),
        *("message_id", "offset_message_id"),
    }
    assert (sent["status"], sent["topic"]) == ("SEND_OK", topic)
    (document,) = shown(run(cluster, "message", "show", sent["offset_message_id"], "--json"))
    assert set(document) == MESSAGE
    assert {name: document[name] for name in sent if name != "status"} == {
        name: value for name, value in sent.items() if name != "status"
    }
    assert (document["body"], document["body_encoding"]) == ('{"id": 42}', "utf-8")
    assert (document["tags"], document["keys"]) == ("paid", ["42", "43"])
    assert document["properties"]["shop"] == "a=b"
    for arguments in (
        [sent["message_id"]],
        [sent["message_id"], "--topic", topic],
        ["43", "--topic", topic, "--key"],
    ):
        assert shown(run(cluster, "message", "show", *arguments, "--json")) == [document]


def test_every_message_with_the_key_is_shown(cluster, topic):
    for body in ("one", "two"):
        send(cluster, topic, body, "--key", "same")
    documents = shown(run(cluster, "message", "show", "same", "--topic", topic, "--key", "--json"))
    assert [one["body"] for one in documents] == ["one", "two"]


def test_a_body_may_come_from_standard_input_and_need_not_be_text(cluster, topic, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\x00")))
    sent = send(cluster, topic, "-")
    (document,) = shown(run(cluster, "message", "show", sent["message_id"], "--json"))
    assert (document["body"], document["body_encoding"]) == ("/wA=", "base64")
    line = run(cluster, "message", "tail", topic, "--from", "earliest", "--no-follow").out
    assert line.endswith("  base64 /wA=\n"), "not as if it were text"


def test_equal_sharding_keys_go_to_one_queue(cluster, topic):
    sent = [send(cluster, topic, "x", "--sharding-key", "shop-7") for _ in range(4)]
    assert len({(one["broker"], one["queue_id"]) for one in sent}) == 1


def test_people_get_a_table_and_a_line(cluster, topic):
    said = run(cluster, "message", "send", topic, "hello\x1b[2J\nthere", "--tag", "t", "--key", "k")
    assert said.code == 0
    assert "SEND_OK" in said.out
    said = run(cluster, "message", "tail", topic, "--from", "earliest", "--no-follow")
    (line,) = said.out.splitlines()
    assert line.endswith(r"[t k]  hello\x1b[2J\nthere")
    assert topic in run(cluster, "message", "show", "k", "--topic", topic, "--key").out


def test_tail_ends_with_the_last_message_or_after_a_count(cluster, topic):
    for number, tag in itertools.product(range(3), ("a", "b")):
        send(cluster, topic, f"{number}{tag}", "--tag", tag)
    arguments = ["message", "tail", topic, "--from", "earliest", "--json"]
    everything = shown(run(cluster, *arguments, "--no-follow"))
    assert sorted(one["body"] for one in everything) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert set(everything[0]) == MESSAGE
    tagged = shown(run(cluster, *arguments, "--no-follow", "--tags", "a"))
    assert {one["tags"] for one in tagged} == {"a"}
    assert len(shown(run(cluster, *arguments, "--count", "2"))) == 2
    later = ["--from", "2100-01-01T00:00:00+00:00", "--no-follow", "--json"]
    assert shown(run(cluster, "message", "tail", topic, *later)) == []


def test_tail_waits_for_what_comes(cluster, topic):
    over = threading.Event()

    def keep_sending():
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            while not over.wait(0.05):
                producer.send(Message(topic, b"new"))

    sending = threading.Thread(target=keep_sending, daemon=True)
    sending.start()
    try:
        (document,) = shown(run(cluster, "message", "tail", topic, "--count", "1", "--json"))
    finally:
        over.set()
        sending.join(10.0)
    assert document["body"] == "new"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_regular_end_of_an_endless_tail(cluster, topic, monkeypatch, number):
    send(cluster, topic, "one book")
    printed = []

    def print_and_end(document):
        printed.append(document["body"])
        signal.raise_signal(number)

    monkeypatch.setattr(message_command, "print_json", print_and_end)
    said = run(cluster, "message", "tail", topic, "--from", "earliest", "--json")
    assert (said.code, said.err, printed) == (0, "", ["one book"])


def test_ctrl_c_before_the_wanted_count_is_no_regular_end(cluster, topic, monkeypatch):
    send(cluster, topic, "one book")
    monkeypatch.setattr(
        message_command, "print_json", lambda _document: signal.raise_signal(signal.SIGINT)
    )
    arguments = ["--from", "earliest", "--count", "2", "--json"]
    assert run(cluster, "message", "tail", topic, *arguments).code == 130


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show", "42"], "is no offset message id"),
        (["show", "42"], "to look for a key, add --topic TOPIC --key"),
        (["show", "0" * 32], "no message with id"),
        (["show", "42", "--key"], "--key needs --topic"),
        (
            ["show", "42", "--key", "--topic", "no-such-topic"],
            "topic 'no-such-topic' does not exist",
        ),
        (["show", "42", "--key", "--topic", "TBW102"], "no message with key '42'"),
        (["send", "t", "x", "--property", "novalue"], "NAME=VALUE"),
        (["send", "no topic", "x"], "is no topic name"),
        (["tail", "no-such-topic"], "topic 'no-such-topic' does not exist"),
        (["tail", "TBW102", "--from", "noon"], "'noon' is no time: write latest, earliest, or a"),
    ],
)
def test_failures_are_two_and_say_what_is_wrong(cluster, arguments, complaint):
    code, out, err = run(cluster, "message", *arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [(), ("send",), ("tail",), ("show",)])
def test_help_teaches_with_examples(command):
    code, out, _ = run(None, "message", *command, "--help")
    assert code == 0
    assert "Examples:" in out
