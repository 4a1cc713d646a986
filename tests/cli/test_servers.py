"""`gimbalmq nameserver` and `gimbalmq broker`: servers as processes of their own."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import sys

import pytest

from gimbalmq.broker.probe import ask, create_topic, lists_brokers, write_queues
from gimbalmq.cli.main import main
from gimbalmq.wire.acl import Credentials
from gimbalmq.wire.codes import RequestCode
from waiting import eventually

GIMBALMQ = (sys.executable, "-c", "from gimbalmq.cli.main import main; main()")
ROOT = Credentials("root", "secret")


@contextlib.contextmanager
def running(*arguments):
    command = [*GIMBALMQ, *map(str, arguments), "--json"]
    # Its standard input is closed from the start, as that of a service is.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert (ready["event"], ready["pid"]) == ("ready", process.pid)
            yield ready
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()


def test_brokers_of_one_cluster_run_in_their_own_processes(tmp_path):
    with running("nameserver", "--port", 0, "--data", tmp_path / "names") as names:
        nameserver = names["address"]
        options = ("--nameserver", nameserver, "--port", 0)
        first = ("broker", *options, "--name", "first", "--data", tmp_path / "first")
        with running(*first, "--flush", "each") as one:
            with running("broker", *options, "--name", "second") as two:
                assert (one["name"], one["nameserver"]) == ("first", nameserver)
                both = [one["address"], two["address"]]
                eventually(lambda: lists_brokers(nameserver, both))
            eventually(lambda: not lists_brokers(nameserver, [two["address"]]))
            create_topic(one["address"], "kept", queues=3, permission=6, order=False, attributes={})
        with running(*first) as one:
            eventually(lambda: write_queues(nameserver, "kept") == {"first": 3})


def test_two_name_servers_know_the_broker():
    with (
        running("nameserver", "--port", 0) as one,
        running("nameserver", "--port", 0) as two,
        running("broker", "--nameserver", f"{one['address']};{two['address']}", "--port", 0) as it,
    ):
        for names in (one, two):
            eventually(lambda names=names: lists_brokers(names["address"], [it["address"]]))


def test_accounts_of_a_file_are_the_only_ones_that_get_in(tmp_path):
    acl = tmp_path / "accounts.toml"
    acl.write_text(
        '[[accounts]]\naccess_key = "root"\nsecret_key = "secret"\nadmin = true\n', "utf-8"
    )
    with (
        running("nameserver", "--port", 0) as names,
        running("broker", "--nameserver", names["address"], "--port", 0, "--acl", acl) as broker,
    ):
        question = broker["address"], RequestCode.GET_BROKER_CONFIG
        assert ask(*question).code == 16
        assert ask(*question, credentials=Credentials("root", "wrong")).code == 16
        assert ask(*question, credentials=ROOT).code == 0


def test_tls_is_spoken_beside_plain_text(tls_files):
    cert, key = tls_files
    with running("nameserver", "--port", 0, "--tls-cert", cert, "--tls-key", key) as names:
        assert ask(names["address"], RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        host, _, port = names["address"].rpartition(":")
        assert "CERTIFICATE" in ssl.get_server_certificate((host, int(port)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["broker"], "--nameserver"),
        (["broker", "--nameserver", "foo", "--port", "0"], "'foo' is not an address"),
        (["broker", "--nameserver", "a:1", "--interface", "0.0.0.0", "--port", "0"], "advertise"),
        (["nameserver", "--tls-key", __file__], "--tls-cert"),
        (["nameserver", "--tls-cert", __file__], "TLS cannot use"),
        (["broker", "--nameserver", "a:1", "--acl", __file__], "account file"),
    ],
)
def test_wrong_use_is_named(monkeypatch, capsys, arguments, words):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err
