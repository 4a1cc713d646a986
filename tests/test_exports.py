"""The public names: what users import may grow, but never changes by accident."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import gimbalmq

#: Names of the package that are promised to users, some of them for later releases.
PROMISED = {
    "Admin", "Commit", "DeadLetter", "FaultTolerance", "LitePullConsumer", "Message",
    "MessageQueue", "Producer", "PullConsumer", "PullResult", "PushConsumer", "QueueOffsets",
    "ReceivedMessage", "RetryLater", "Rollback", "SendResult", "SendStatus", "Suspend", "aio", "balance",
    "broker", "errors", "metrics", "spark", "testing",
    "ConsumerStats", "HungListener", "MemorySeen", "Probe", "QueueStats",
    "SeenStore", "SqliteSeen", "idempotent", "QueueMove", "RebalanceReport",
}  # fmt: skip
#: Those that this release has; more of the promised ones may be there already.
DELIVERED = {
    "Message", "MessageQueue", "Producer", "PushConsumer", "QueueMove", "RebalanceReport",
    "ReceivedMessage", "SendResult", "aio", "balance", "errors",
}  # fmt: skip
#: The classes that exist twice: for threads, and with coroutines in gimbalmq.aio.
TWICE = {"Admin", "LitePullConsumer", "Producer", "PullConsumer", "PushConsumer"}
#: Methods of one face only, with the reason: any thread may ask a client on threads; each face has
#: its own way into a with statement.
ONE_FACE = {"from_thread", "__enter__", "__exit__", "__aenter__", "__aexit__"}
#: Public functions and classes of gimbalmq.balance.
BALANCE = {"Explanation", "Measures", "Snapshot", "Strategy", "allocate", "explain", "measure",
           "register", "strategy"}  # fmt: skip

#: What the signatures of delivered names must accept, by keyword.
PARAMETERS = {
    "Message": {"topic", "body", "tags", "keys", "properties", "delay_level", "deliver_at",
                "sharding_key"},
    "Producer": {"group", "nameserver", "timeout_s", "retries", "client_id"},
    "PushConsumer": {"group", "nameserver", "allocation", "start_from", "client_id", "batch_size",
                     "workers", "rebalance_interval_s", "pull_idle_limit_s"},
    "balance.allocate": {"strategy", "queues", "members", "group", "options"},
    "balance.explain": {"strategy", "queue", "queues", "members", "group", "options"},
    "balance.measure": {"before", "after"},
}  # fmt: skip

#: Methods and attributes of delivered classes.
MEMBERS = {
    "MessageQueue": {"topic", "broker", "queue_id"},
    "Producer": {"send", "queues"},
    "PushConsumer": {"subscribe", "start", "stop", "run", "assignment"},
    "ReceivedMessage": {"topic", "body", "tags", "keys", "properties", "queue", "queue_offset",
                        "message_id", "offset_message_id", "born_at", "stored_at", "born_host",
                        "reconsume_times"},
    "RebalanceReport": {"group", "trigger", "members", "strategy", "acquired", "revoked", "kept",
                        "reasons", "topic", "all_queues", "mine", "moves", "done"},
    "SendResult": {"status", "message_id", "offset_message_id", "queue", "queue_offset"},
}  # fmt: skip


def resolve(name):
    target = gimbalmq
    for part in name.split("."):
        target = getattr(target, part)
    return target


def test_only_promised_names_are_exported_and_all_delivered_ones():
    exported = set(gimbalmq.__all__) - {"__version__"}
    assert exported - PROMISED == set(), "promise it here first, or keep it private"
    assert DELIVERED - exported == set()


@pytest.mark.parametrize("name", sorted(DELIVERED))
def test_every_exported_name_is_there_and_described(name):
    value = getattr(gimbalmq, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    assert name in dir(gimbalmq)


def test_balance_exports_its_face():
    assert set(gimbalmq.balance.__all__) >= BALANCE


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_signatures_keep_their_parameters(name):
    assert set(inspect.signature(resolve(name)).parameters) >= PARAMETERS[name]


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_classes_keep_their_members(name):
    assert {member for member in MEMBERS[name] if not hasattr(resolve(name), member)} == set()


def test_aio_exports_the_same_classes():
    assert set(gimbalmq.aio.__all__) == TWICE


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")} - ONE_FACE


@pytest.mark.parametrize("name", sorted(TWICE))
def test_both_faces_have_the_same_options_and_methods(name):
    on_threads, on_a_loop = getattr(gimbalmq, name), getattr(gimbalmq.aio, name)
    assert set(inspect.signature(on_a_loop).parameters) == set(
        inspect.signature(on_threads).parameters
    )
    assert public(on_a_loop) == public(on_threads)
    assert inspect.getdoc(on_a_loop)


@pytest.mark.parametrize("name", sorted(TWICE))
def test_methods_of_both_faces_take_the_same(name):
    on_threads, on_a_loop = getattr(gimbalmq, name), getattr(gimbalmq.aio, name)
    for method in sorted(public(on_threads)):
        # On a loop a probe has no thread to wait for, hence no time limit.
        if callable(getattr(on_threads, method)) and method != "probe":
            there = inspect.signature(getattr(on_a_loop, method)).parameters
            here = inspect.signature(getattr(on_threads, method)).parameters
            assert list(there) == list(here), method


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = gimbalmq.NoSuchName


def test_every_error_of_the_tree_is_exported_from_errors():
    errors = importlib.import_module("gimbalmq.errors")
    tree = {
        name for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.GimbalError)
    }  # fmt: skip
    assert tree == set(errors.__all__)


def test_importing_the_package_starts_nothing_and_loads_no_extra():
    """Spark forks its workers: no thread may exist after an import, and extras stay optional."""
    program = (
        "import sys, threading, gimbalmq; [getattr(gimbalmq, n) for n in gimbalmq.__all__]; "
        "extras = {'click', 'rich', 'pyspark', 'pyarrow', 'numpy', 'lz4', 'hypothesis', 'pytest'}; "
        "print(threading.active_count(), sorted(extras & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "1 []\n"
