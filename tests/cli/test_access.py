import json

import pytest

from cli.admin_stage import run
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from transport.certificates import AUTHORITY, FOLDER, server_files


@pytest.fixture(scope="module")
def cluster():
    account = Account(access_key="keeper", secret_key="keeper-secret", admin=True)
    tls = server_files(wants_client=True)
    with EmbeddedCluster(accounts=[account], tls=tls) as cluster:
        cluster.create_topic("shop%orders", queues=2)
        yield cluster


KEYS = ["--access-key", "keeper", "--secret-key", "keeper-secret"]
TLS = [
    *("--tls-ca-file", str(AUTHORITY)),
    *("--tls-cert-file", str(FOLDER / "client.pem"), "--tls-key-file", str(FOLDER / "client.key")),
]


def test_commands_take_keys_certificates_and_a_namespace(cluster):
    options = [*KEYS, *TLS, "--namespace", "shop", "--json"]
    assert run(cluster, "message", "send", "orders", "hello", *options).code == 0
    listed = run(cluster, "topic", "list", *options)
    assert "orders" in json.dumps(json.loads(listed.out))
    assert "shop%" not in listed.out
    assert run(cluster, "group", "list", *options).code == 0


def test_keys_may_come_from_the_environment(cluster, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "keeper")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "keeper-secret")
    assert run(cluster, "group", "list", "--json").code == 0


def test_a_command_without_keys_says_what_to_give(cluster):
    refused = run(cluster, "group", "list", "--json")
    assert refused.code == 2
    assert "give access_key and secret_key" in refused.err
