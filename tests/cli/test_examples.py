"""Every example that `--help` shows is run: here those that ask a cluster and end by themselves.

The cluster has what the examples name.
"""

from __future__ import annotations

import io
import shlex
import sys
from contextlib import ExitStack

import click
import pytest
from click.shell_completion import BashComplete

from cli.admin_stage import run
from cli.help_examples import (
    BY_MATRIX_ONLY,
    NOT_RUN,
    PLACES,
    commands,
    examples,
    places_of,
    run_by,
)
from gimbalmq import Admin, DeadLetter, Message, MessageQueue, Producer, PushConsumer
from gimbalmq.cli.root import root
from gimbalmq.client.events import EVENTS_TOPIC
from waiting import eventually


def test_every_example_is_run_by_the_tests_of_one_place():
    places = {line: places_of(line) for line in examples()}
    assert {line: found for line, found in places.items() if len(found) != 1} == {}
    assert len(places) > 60
    assert {place for found in places.values() for place in found} == PLACES.keys()


def test_the_list_of_what_is_not_run_is_exact():
    assert NOT_RUN.keys() | BY_MATRIX_ONLY.keys() <= set(examples())
    assert all({**NOT_RUN, **BY_MATRIX_ONLY}.values()), "each has its reason"
    collected = [one for place in PLACES for one in run_by(place)]
    assert {one.values[0] for one in collected} == set(examples()) - NOT_RUN.keys()
    left_out = {one.values[0] for one in collected if one.marks}
    assert left_out == BY_MATRIX_ONLY.keys(), "all others are run by `make test`"


class Stage:
    """Topic `orders` and group `billing` with members, messages, a dead letter and a history."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self._stack = ExitStack()

    def __enter__(self):
        cluster = self.cluster
        cluster.create_topic("orders", queues=4)
        cluster.create_topic(EVENTS_TOPIC, queues=1)
        with Producer("shop", nameserver=cluster.nameserver) as producer:
            for number in (0, 1):
                queue = MessageQueue("orders", "broker-a", number)
                producer.send_batch([Message("orders", b"x") for _ in range(130)], queue=queue)
            message = Message("orders", b"bury", keys=["42"], tags="paid")
            self.sent = producer.send(message)
        for name, events in (
            ("till-1", self.folder / "rebalances.jsonl"),
            ("till-2", EVENTS_TOPIC),
        ):
            consumer = PushConsumer(
                "billing",
                nameserver=cluster.nameserver,
                client_id=name,
                start_from="first",
                events=events,
                persist_consumer_offset_interval_s=0.1,
            )
            consumer.subscribe("orders", listener=self._listen)
            self._stack.enter_context(consumer)
        with Admin(cluster.nameserver) as admin:
            eventually(lambda: self._settled(admin))
            self.dead = eventually(lambda: list(admin.tail("%DLQ%billing", start_from="first",
                                                           follow=False)))[0]  # fmt: skip
        return self

    def __exit__(self, *_):
        self._stack.close()

    @staticmethod
    def _listen(message):
        if message.body == b"bury":
            raise DeadLetter("for the examples")

    @staticmethod
    def _settled(admin):
        lags = [one.lag for one in admin.offsets("billing", "orders").values()]
        return "%DLQ%billing" in admin.topics(internal=True) and not any(lags)

    def words(self, line):
        """The example as it is run: with ids that exist, an end, and no question."""
        _, *words = shlex.split(line)
        real = {
            "7F00000100002A9F0000000000000400": self.sent.offset_message_id,
            "0A000007125B4E1A2B0047B760000000": (
                self.dead.message_id if "dead-letters" in words else self.sent.message_id
            ),
            "30": "0.2",
        }
        words = [real.get(word, word) for word in words]
        match words[:2]:
            case ["group", "doctor"] if "--interval" not in words:
                words += ["--interval", "0.2"]
            case ["group", "guard"]:
                words += ["--for", "0.3"]
            case ["group", "show"] if "--live" in words:
                words += ["--for", "0.3"]
            case ["message", "tail"]:
                words += ["--no-follow"]
            case ["topic", "delete"]:
                self.cluster.create_topic("parting", queues=1)
                words[2] = "parting"
            case ["group", "reset"] if "--yes" not in words:
                words += ["--yes"]
            case ["group", "dead-letters"] if "--id" in words:
                words += ["--all"]  # another example may have re-driven it already
            case ["group", "dead-letters"] if "--redrive" in words:
                words += ["--yes"]
        return words


@pytest.fixture(scope="module")
def stage(cluster, tmp_path_factory):
    with Stage(cluster, tmp_path_factory.mktemp("examples")) as stage:
        yield stage


@pytest.mark.parametrize("line", run_by("against a cluster"))
def test_an_example_does_what_it_says(stage, line, monkeypatch):
    monkeypatch.chdir(stage.folder)
    question = b'{"strategy":"AVG","queues":[["orders","broker-a",0]],"members":["ann"]}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(question)))
    words = stage.words(line)
    on_paper = words[0] == "balance" and "--group" not in words
    on_paper |= words[:2] == ["pipeline", "list"]
    said = run(None if on_paper else stage.cluster, *words)
    # A doctor may find what the other examples do meanwhile.
    assert said.code == 0 or (words[1] == "doctor" and said.code == 1), said
    assert "Traceback" not in said.err


@pytest.mark.parametrize("line", [pytest.param(line, id=line) for line in examples()])
def test_an_example_is_taken_by_its_command(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line)
    assert program == "gimbalmq"
    command = root
    context = click.Context(root)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None, line
    command.make_context("example", words, parent=context)


def test_every_command_has_an_example_of_its_own():
    lacking = [
        path
        for path, command in commands()
        if not isinstance(command, click.Group)
        and f"gimbalmq {' '.join(path)}" not in (command.help or "")
    ]
    assert lacking == []


def test_the_shell_completes_commands():
    complete = BashComplete(root, {}, "gimbalmq", "_GIMBALMQ_COMPLETE")
    assert {one.value for one in complete.get_completions(["group"], "do")} == {"doctor"}
    options = {one.value for one in complete.get_completions(["group", "guard"], "--")}
    assert {"--act", "--grace", "--json"} <= options
