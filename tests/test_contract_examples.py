"""Every public name that users rely on shows in its docstring how it is used, and that holds.

Examples of methods are run on the embedded cluster. What they speak of is there: a topic `orders`
with messages, a group `billing` with a member, and the object whose method it is.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
from contextlib import AsyncExitStack, ExitStack
from types import SimpleNamespace

import pytest

import gimbalmq
from aio.conftest import until
from gimbalmq import Message, MessageQueue
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.core.allocation import base
from waiting import eventually

#: Names of the package, and the methods of its classes; those of aio are the same.
NAMES = {
    "MessageQueue": (),
    "Message": (),
    "ReceivedMessage": (),
    "SendResult": (),
    "PullResult": (),
    "QueueOffsets": (),
    "FaultTolerance": (),
    "RetryLater": (),
    "DeadLetter": (),
    "Suspend": (),
    "Commit": (),
    "Rollback": (),
    "balance.allocate": (),
    "balance.explain": (),
    "balance.measure": (),
    "balance.strategy": (),
    "balance.register": (),
    "balance.Strategy": (),
    "balance.Snapshot": (),
    "balance.Explanation": (),
    "balance.Measures": (),
    "Producer": (
        "send", "send_async", "send_oneway", "send_batch", "transaction", "queues", "flush",
    ),
    "PushConsumer": (
        "subscribe", "unsubscribe", "start", "stop", "run", "pause", "resume", "assignment",
        "on_rebalance", "stats", "check_sql",
    ),
    "PullConsumer": (
        "queues", "assignment", "pull", "committed", "commit", "on_queues_changed",
    ),
    "LitePullConsumer": (
        "subscribe", "assign", "poll", "seek", "pause", "resume", "commit", "assignment",
    ),
    "Admin": (
        "topics", "create_topic", "route", "groups", "members", "assignments", "offsets", "reset",
        "message",
    ),
    "broker.EmbeddedCluster": ("kill", "restart", "create_topic"),
    "testing.ApacheRocketMQ": ("kill", "restart", "create_topic"),
    "errors.GimbalError": (),
}  # fmt: skip
TWICE = ("Producer", "PushConsumer", "PullConsumer", "LitePullConsumer", "Admin")
#: A coroutine send is a future already.
ONE_FACE = {"send_async"}


def _paths():
    for name, methods in NAMES.items():
        yield name
        yield from (f"{name}.{method}" for method in methods)
        if name in TWICE:
            yield f"aio.{name}"
            yield from (f"aio.{name}.{method}" for method in methods if method not in ONE_FACE)


def resolve(path):
    value = gimbalmq
    for part in path.split("."):
        value = getattr(value, part)
    return value


def examples(text):
    """The code in a docstring: what stands behind `>>>`, and what is set in by four blanks."""
    lines = text.splitlines()
    prompts = [line.strip()[4:] for line in lines if line.strip().startswith((">>> ", "... "))]
    if prompts:
        yield "\n".join(prompts)
    block, heading, before = [], "", ""
    for line in [*lines, "end"]:
        begins = line.startswith("    ") and not before.strip()
        before = line
        if begins or (block and (line.startswith("    ") or not line.strip())):
            block.append(line)
        else:
            if block and not heading.startswith(("Args", "Raises", "Returns")):
                yield textwrap.dedent("\n".join(block)).strip()
            block = []
            heading = line.strip() or heading


def test_code_in_docstrings_is_told_from_their_arguments():
    found = examples(
        "Do it.\n\n    do(it)\n\n    undo(it)\n\nArgs:\n    it: What to do.\n\n>>> more(it)\n7\n"
    )
    assert list(found) == ["more(it)", "do(it)\n\nundo(it)"]


@pytest.mark.parametrize("path", sorted(set(_paths())))
def test_a_name_of_the_contract_has_an_example_that_uses_it(path):
    doc = inspect.getdoc(resolve(path))
    assert doc, f"{path} has no docstring"
    shown = list(examples(doc))
    assert shown, f"{path} has no example"
    for code in shown:
        ast.parse(f"async def example():\n{textwrap.indent(code, '    ')}")
    if inspect.isroutine(resolve(path)):
        name = path.rpartition(".")[2]
        assert any(name in code for code in shown), f"the example of {path} does not use it"


# ---- run -----------------------------------------------------------------------------------------


QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture(scope="module")
def nameserver():
    with EmbeddedCluster() as cluster, ExitStack() as stack:
        for topic in ("orders", "refunds"):
            cluster.create_topic(topic, queues=2)
        address = cluster.nameserver
        with gimbalmq.Producer("senders", nameserver=address) as producer:
            for queue in producer.queues("orders"):
                producer.send(Message("orders", b"one book", keys=["42"]), queue=queue)
        member = gimbalmq.PushConsumer("billing", nameserver=address, start_from="first")
        got = []
        member.subscribe("orders", listener=got.append)
        stack.enter_context(member)
        eventually(lambda: len(got) == 2)
        yield address


def methods_of(prefix):
    """The methods of the classes that exist twice, on one of their faces."""
    kinds = tuple(f"{prefix}{kind}." for kind in TWICE)
    return [path for path in sorted(set(_paths())) if path.startswith(kinds)]


def made(path, nameserver, unique_name):
    """The object of an example, by its name there; and whether it is to be started."""
    face = gimbalmq.aio if path.startswith("aio.") else gimbalmq
    kind, method = path.removeprefix("aio.").split(".")
    if kind == "Admin":
        return "admin", face.Admin(nameserver), True
    group = unique_name("example")
    if kind == "Producer":
        return "producer", face.Producer(group, nameserver=nameserver), True
    start = {} if kind == "PullConsumer" else {"start_from": "first"}
    one = getattr(face, kind)(group, nameserver=nameserver, **start)
    if kind == "PushConsumer":
        one.subscribe("orders", listener=lambda _message: None)
    return "consumer", one, method not in {"start", "assign"}


def names_for(name, value):
    return {
        "__name__": "example",  # so that what is for a main program does not run
        "Message": Message,
        "MessageQueue": MessageQueue,
        "asyncio": asyncio,
        "queue": QUEUE,
        "message": Message("orders", b"one book"),
        "messages": [Message("orders", b"one book")],
        "order": object(),
        "bill": print,
        "database": SimpleNamespace(save=lambda *_arguments: None),
        name: value,
    }


@pytest.mark.parametrize("path", methods_of(""))
def test_the_example_of_a_method_runs(path, nameserver, unique_name):
    name, value, starts = made(path, nameserver, unique_name)
    with ExitStack() as stack:
        if starts:
            stack.enter_context(value)
        if path.startswith("LitePullConsumer.") and not path.endswith((".assign", ".subscribe")):
            value.assign([QUEUE])
            eventually(lambda: QUEUE in value.assignment())
        for code in examples(inspect.getdoc(resolve(path))):
            exec(compile(code, path, "exec"), names_for(name, value))


@pytest.mark.parametrize("path", methods_of("aio."))
def test_the_example_of_a_coroutine_runs(path, nameserver, unique_name):
    async def main():
        name, value, starts = made(path, nameserver, unique_name)
        async with AsyncExitStack() as stack:
            if starts:
                await stack.enter_async_context(value)
            if ".LitePullConsumer." in path and not path.endswith((".assign", ".subscribe")):
                await value.assign([QUEUE])
                await until(lambda: QUEUE in value.assignment())
            for code in examples(inspect.getdoc(resolve(path))):
                names = names_for(name, value)
                if "database" in code:
                    names["database"] = SimpleNamespace(save=_saved)
                text = f"async def example():\n{textwrap.indent(code, '    ')}"
                exec(compile(text, path, "exec"), names)
                await names["example"]()

    asyncio.run(main())


async def _saved(*_arguments):
    pass


def test_the_examples_of_strategies_run(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    monkeypatch.setattr(base, "_registered", {})
    queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    names = {
        "balance": gimbalmq.balance,
        "PushConsumer": gimbalmq.PushConsumer,
        "queue": queues[3],
        "queues": queues,
        "print": lambda *_words: None,
    }
    for name in ("Strategy", "register", "Explanation"):
        (code,) = examples(inspect.getdoc(getattr(gimbalmq.balance, name)))
        exec(compile(code, name, "exec"), names)
    assert names["consumer"].client_id.endswith("@gmq1-DEALT")
    assert names["explanation"].owner == "bob"


def test_the_examples_of_a_cluster_run():
    with EmbeddedCluster() as cluster:
        for method in ("create_topic", "kill", "restart"):
            for code in examples(inspect.getdoc(getattr(EmbeddedCluster, method))):
                exec(compile(code, method, "exec"), {"cluster": cluster})
