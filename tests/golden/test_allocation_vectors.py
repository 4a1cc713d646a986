"""Every recorded result of Java's strategies."""

import json
import random

import pytest

from gimbalmq import balance
from gimbalmq.model.queue import MessageQueue

#: How many wrong lines an error message shows.
SHOWN = 5


@pytest.fixture(scope="module")
def lines(vectors_dir):
    text = (vectors_dir / "allocation.jsonl").read_text("utf-8")
    # Not splitlines: names may contain other line separators than the line feed.
    found = [json.loads(line) for line in text.split("\n") if line]
    assert found, "the vector file is empty"
    return found


def prefix(text):
    return text.partition("-")[0]


def options_of(line, queues):
    options = dict(line["options"])
    if options.pop("zone", None) is not None:
        assert line["options"]["zone"] == "prefix:-"
        options["room_of_queue"] = lambda queue: prefix(queue.broker)
        options["room_of_member"] = prefix
    if "queues" in options:
        options["queues"] = {
            member: [queues[at] for at in indexes] for member, indexes in options["queues"].items()
        }
    return options


def shares(line, order):
    """Shares as the file has them, computed from queues and members in another order."""
    queues = [MessageQueue(*queue) for queue in line["queues"]]
    result = balance.allocate(
        line["strategy"],
        queues=order(queues),
        members=order(line["members"]),
        options=options_of(line, queues),
    )
    assert list(result) == list(dict.fromkeys(line["members"])), "every member, in Java's order"
    index = {queue: at for at, queue in enumerate(queues)}
    return [[index[queue] for queue in result[member]] for member in line["members"]]


def wrong(lines, order):
    return [
        f"line {number}: {line['strategy']} {line['options']}, members {line['members']}"
        for number, line in enumerate(lines, start=1)
        if shares(line, order) != line["shares"]
    ]


@pytest.mark.rule("B1.1a", "B1.2a", "B1.3a", "B1.4a", "B1.5a", "B1.6c")
def test_every_line_gives_javas_shares(lines):
    different = wrong(lines, order=list)
    assert not different, f"{len(different)} of {len(lines)} lines differ: {different[:SHOWN]}"


@pytest.mark.rule("B0a", "B0b")
def test_every_line_gives_javas_shares_from_any_order(lines):
    chance = random.Random(7)
    different = wrong(lines, order=lambda listed: chance.sample(listed, len(listed)))
    assert not different, f"{len(different)} of {len(lines)} lines differ: {different[:SHOWN]}"


def test_every_explanation_names_an_owner_that_java_names(lines):
    for line in lines:
        queues = [MessageQueue(*queue) for queue in line["queues"]]
        options = options_of(line, queues)
        for at in {0, len(queues) // 2, len(queues) - 1}:
            why = balance.explain(
                line["strategy"],
                queue=queues[at],
                queues=queues,
                members=line["members"],
                options=options,
            )
            owners = [
                member
                for member, share in zip(line["members"], line["shares"], strict=True)
                if at in share
            ]
            assert why.owner == (owners[0] if owners else None)
