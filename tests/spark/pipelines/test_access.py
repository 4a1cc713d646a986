"""Pipelines on a cluster that wants keys and TLS, in a namespace, as the command line gives them."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from gimbalmq import Admin, Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.cli.pipeline import pipeline
from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.pipelines import PIPELINES
from gimbalmq.spark.pipelines.archive import Options as ArchiveOptions
from gimbalmq.spark.pipelines.settings import client_options, parse_options, source_options
from gimbalmq.spark.pipelines.weights import latest_weights
from spark.test_access import ACCESS, CLIENT, SECRET
from transport.certificates import AUTHORITY, FOLDER, server_files

COMMAND = [
    *("--access-key", "shop", "--secret-key", SECRET, "--namespace", "tenant"),
    *("--tls-ca-file", str(AUTHORITY), "--tls-cert-file", str(FOLDER / "client.pem")),
    *("--tls-key-file", str(FOLDER / "client.key")),
]


def test_access_reaches_the_source_and_the_clients_and_no_text():
    options = parse_options(ArchiveOptions, {"nameserver": "a:1", "path": "p", **ACCESS})
    given = source_options(options)
    assert given == {"nameserver": "a:1", **ACCESS}
    clients = client_options(options)
    assert (clients["access_key"], clients["namespace"]) == ("shop", "tenant")
    assert clients["tls"].ca_file == str(AUTHORITY)
    assert SECRET not in repr(options) + str(options)
    assert "secret_key='...'" in repr(options)


def test_half_of_the_keys_is_refused():
    options = parse_options(ArchiveOptions, {"nameserver": "a:1", "path": "p", "accessKey": "x"})
    with pytest.raises(ConfigurationError, match="option 'accessKey' is given without 'secretKey'"):
        client_options(options)


@pytest.fixture(scope="module")
def guarded():
    account = Account(access_key="shop", secret_key=SECRET, admin=True)
    with EmbeddedCluster(accounts=[account], tls=server_files(wants_client=True)) as cluster:
        yield cluster


@pytest.fixture
def topic(guarded, topic_name):
    guarded.create_topic(f"tenant%{topic_name}", queues=2)
    with Producer("loaders", nameserver=guarded.nameserver, **CLIENT) as producer:
        for number in range(30):
            producer.send(Message(topic_name, b"%d" % number, keys="k"))
    return topic_name


@pytest.fixture
def run(spark, guarded, monkeypatch):
    """The command itself, on the session of the tests."""
    monkeypatch.setattr("gimbalmq.spark.session.local_session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def start(name, **given):
        command = ["run", name, "--json", "--nameserver", guarded.nameserver, *COMMAND]
        for option, value in given.items():
            command += ["--option", f"{option}={value}"]
        done = CliRunner().invoke(pipeline, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
        return json.loads(done.stdout)

    return start


def test_every_pipeline_works_with_keys_and_tls_in_a_namespace(
    guarded, spark, topic, run, unique_name, group_name, tmp_path
):
    target = unique_name("copy")
    guarded.create_topic(f"tenant%{target}", queues=1)
    path = tmp_path / "archive"
    done = {"archive": run("archive", topic=topic, path=path, group=group_name)}
    assert done["archive"]["facts"]["messages"] == 30
    assert {row.topic for row in spark.read.parquet(str(path)).collect()} == {topic}
    written = "".join(file.read_text() for file in (path / "_checkpoint").rglob("*[0-9]"))
    assert topic in written
    assert SECRET not in written
    done["transform"] = run(
        "transform",
        topic=topic,
        to=target,
        checkpoint=tmp_path / "state",
        sql="select body, keys from messages",
    )
    now_ms = int(time.time() * 1000)
    times = {"startingTimestamp": now_ms - 600_000, "endingTimestamp": now_ms + 600_000}
    done["replay"] = run("replay", topic=target, to=topic, **times)
    assert done["replay"]["facts"]["written"] == 30
    done["load-profile"] = run("load-profile", topic=topic, publish="true")
    assert done["load-profile"]["facts"]["messages"] == 60
    weights = latest_weights(topic, nameserver=guarded.nameserver, **CLIENT).weights
    assert {path.split("/")[0] for path in weights} == {topic}
    done["group-health"] = run("group-health", group=group_name, history=tmp_path / "h", looks="1")
    assert done["group-health"]["facts"]["lag"] == 30
    assert done.keys() == PIPELINES.keys()


def test_dead_letters_of_a_namespace_go_back_where_they_came_from(guarded, topic, run, group_name):
    def refuse(_message):
        raise RuntimeError("refused")

    settings = {"start_from": "first", "max_reconsume_times": 0, **CLIENT}
    consumer = PushConsumer(group_name, nameserver=guarded.nameserver, **settings)
    consumer.subscribe(topic, listener=refuse)
    deadline = time.monotonic() + 60
    with consumer, Admin(guarded.nameserver, **CLIENT | {"namespace": None}) as admin:
        dead = f"%DLQ%tenant%{group_name}"
        while dead not in admin.topics(internal=True) or not sum(
            one.maximum == 30 for one in admin.offsets(group_name, dead).values()
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    report = run("replay", deadLettersOf=group_name)
    assert report["tables"]["targets"] == [{"topic": topic, "messages": 30}]
