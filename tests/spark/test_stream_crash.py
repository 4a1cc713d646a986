"""Streaming into Parquet while driver, workers and broker are killed in turn, under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import GimbalError

JOB = Path(__file__).with_name("stream_job.py")


class Load:
    """Sends all the time; what was acknowledged is known by its key."""

    def __init__(self, nameserver, topic):
        self.acknowledged = set()
        self._nameserver, self._topic = nameserver, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        number = 0
        with Producer("load", nameserver=self._nameserver, timeout_s=1.0, retries=0) as producer:
            while not self._over.wait(0.002):
                number += 1
                try:
                    producer.send(Message(self._topic, b"x" * 100, keys=f"key-{number}"))
                except GimbalError:
                    continue  # not acknowledged: it may be stored or not
                self.acknowledged.add(f"key-{number}")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


class Job:
    """The streaming job; started again and again on the same folder."""

    def __init__(self, nameserver, topic, folder):
        self._command = [sys.executable, str(JOB), nameserver, topic, str(folder)]
        self._folder = folder
        self._log = folder / "job.log"
        self.process = None

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def batches(self):
        return self._log.read_text("utf-8", errors="replace").count("batch ")

    def wait_for_batches(self, count, timeout_s=120):
        wanted, deadline = self.batches() + count, time.monotonic() + timeout_s
        while self.batches() < wanted:
            if self.process.poll() is not None:
                self.start()  # it failed, as jobs do; whoever runs it starts it again
            assert time.monotonic() < deadline, self._log.read_text("utf-8", errors="replace")
            time.sleep(0.05)

    def kill_workers(self):
        """Kill the processes that read: children of the daemon, and never the driver itself."""
        for pid in _descendants(self.process.pid):
            if b"pyspark.daemon" in _command_line(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def finish(self, timeout_s=180):
        (self._folder / "finish").touch()
        deadline = time.monotonic() + timeout_s
        while self.process.poll() != 0:
            if self.process.poll() is not None:
                self.start()
            assert time.monotonic() < deadline, self._log.read_text("utf-8", errors="replace")
            time.sleep(0.1)
        self.process = None


def _command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(pid):
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_every_stored_message_is_in_the_files_exactly_once(spark, topic_name, tmp_path, rounds):
    with EmbeddedCluster(brokers=2, data=tmp_path / "data", processes=True) as cluster:
        cluster.create_topic(topic_name, queues=2)
        job = Job(cluster.nameserver, topic_name, tmp_path)
        try:
            with Load(cluster.nameserver, topic_name) as load:
                job.start()
                for number in range(rounds):
                    job.wait_for_batches(2)
                    match number % 3:
                        case 0:
                            job.kill()
                            job.start()
                        case 1:
                            # A batch that is under way needs it, and waits for it.
                            cluster.kill("broker-b")
                            cluster.restart("broker-b")
                        case 2:
                            job.kill_workers()
                job.wait_for_batches(1)
            job.finish()
        finally:
            job.kill()
        with Admin(cluster.nameserver) as admin:
            stored = {
                (queue.broker, queue.queue_id, offset)
                for queue, one in admin.offsets("stream-job", topic_name).items()
                for offset in range(one.minimum, one.maximum)
            }
            for one in admin.offsets("stream-job", topic_name).values():
                assert one.committed == one.maximum
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    places = [(row.broker, row.queue_id, row.queue_offset) for row in rows]
    assert len(places) == len(set(places))
    assert set(places) == stored
    assert load.acknowledged <= {row["keys"] for row in rows}
    assert len(load.acknowledged) > 100
