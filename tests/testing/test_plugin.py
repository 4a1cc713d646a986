"""The pytest plugin, as a project of somebody else uses it: in a run of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

TEST = """
from gimbalmq import Message, Producer


def test_it_serves(rocketmq, rocketmq_engine):
    assert rocketmq_engine == {engine!r}
    assert len(rocketmq.brokers) == {brokers}
    rocketmq.create_topic("orders", queues=2)
    with Producer("shop", nameserver=rocketmq.nameserver) as producer:
        assert producer.send(Message("orders", b"x")).queue.topic == "orders"


def test_it_is_the_same_for_the_whole_run(rocketmq):
    rocketmq.create_topic("refunds", queues=1)
"""


def run(folder, *arguments, engine, brokers=1):
    (folder / "test_shop.py").write_text(TEST.format(engine=engine, brokers=brokers), "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )


def test_the_fixture_is_the_embedded_cluster(tmp_path):
    answer = run(tmp_path, engine="embedded")
    assert answer.returncode == 0, answer.stdout
    assert "2 passed" in answer.stdout


def test_it_has_as_many_brokers_as_asked_for(tmp_path):
    answer = run(tmp_path, "--rocketmq-brokers=2", engine="embedded", brokers=2)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.product
def test_the_real_one_is_an_option_away(tmp_path, rocketmq_version):
    options = ("--rocketmq-engine=apache", f"--rocketmq-version={rocketmq_version}")
    answer = run(tmp_path, *options, engine="apache")
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("option", ["--rocketmq-engine=steam", "--rocketmq-version=1.0"])
def test_what_there_is_not_is_wrong_use(tmp_path, option):
    answer = run(tmp_path, option, engine="embedded")
    assert answer.returncode == 4
    assert "invalid choice" in answer.stderr
