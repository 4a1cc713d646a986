"""The metrics of an embedded broker, asked for as Prometheus would."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager

from gimbalmq import Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.ports import PortClaims, listen
from gimbalmq.broker.services import BrokerService
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.errors import GimbalError


@contextmanager
def measured_broker(nameserver, folder):
    """A broker with an endpoint, on a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin():
        listener = listen("127.0.0.1", 0, what="a test's broker")
        settings = BrokerSettings(name="measured", host="127.0.0.1")
        service = BrokerService(listener, settings, [nameserver], folder=folder, metrics_port=0)
        await service.start()
        return service

    service = asyncio.run_coroutine_threadsafe(begin(), loop).result(20)
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def numbers(service):
    with urllib.request.urlopen(f"http://{service.metrics.address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_a_broker_tells_messages_lag_members_and_connections(tmp_path, topic_name, group_name):
    with (
        EmbeddedCluster(1) as cluster,
        measured_broker(cluster.nameserver, tmp_path) as service,
        Producer("makers", nameserver=cluster.nameserver) as producer,
    ):
        cluster.kill(cluster.brokers[0].name)
        deadline = time.monotonic() + 30
        while True:
            try:
                queue = producer.send(Message(topic_name, b"1")).queue
                break
            except GimbalError:
                assert time.monotonic() < deadline
        consumer = PushConsumer(group_name, nameserver=cluster.nameserver, start_from="first")
        got = threading.Event()
        consumer.subscribe(topic_name, listener=lambda message: got.set())
        with consumer:
            assert got.wait(30)
            members = f'gimbalmq_broker_group_members{{broker="measured",group="{group_name}"}}'
            assert numbers(service)[members] == 1
        where = f'topic="{topic_name}",broker="measured",queue="{queue.queue_id}"'
        found = numbers(service)
        assert found[f"gimbalmq_broker_queue_messages_total{{{where}}}"] == 1
        assert found[f'gimbalmq_broker_lag_messages{{group="{group_name}",{where}}}'] == 0
        assert found['gimbalmq_broker_connections{broker="measured"}'] >= 1
        producer.send(Message(topic_name, b"2"), queue=queue)
        assert (
            numbers(service)[f'gimbalmq_broker_lag_messages{{group="{group_name}",{where}}}'] == 1
        )


def test_the_command_answers_prometheus_where_it_is_told_to():
    with PortClaims() as claims:
        port = claims.choose()
        command = [
            *(sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "broker"),
            *("--nameserver", "127.0.0.1:1", "--port", "0", "--json"),
            *("--metrics-port", str(port)),
        ]
        check_metrics(command, port)


def check_metrics(command, port):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert '"ready"' in process.stdout.readline()
            address = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert 'gimbalmq_broker_connections{broker="broker-a"} ' in answer.read().decode()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
