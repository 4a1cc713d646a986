from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.ports import PortClaims
from spark.standalone import Session, awaited, spark_environment

STARTED = re.compile(r"Spark Connect server started at")


@pytest.fixture
def port():
    """A free one, which nobody of this user takes while the test runs."""
    with PortClaims() as claims:
        yield claims.choose()


@pytest.fixture
def server(tmp_path, port):
    """A Spark Connect server as its own script starts it; tasks are tried again, as on a cluster."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
    command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[2,4]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for item in settings.items() for part in ("--conf", "{}={}".format(*item))]
    running = Session(
        [*command, "spark-internal"], tmp_path / "server.log", env=spark_environment(), cwd=tmp_path
    )
    try:
        awaited(running, STARTED)
        yield f"sc://127.0.0.1:{port}"
    finally:
        running.kill()


@pytest.mark.spark
@pytest.mark.product
@pytest.mark.timeout(600)
def test_a_connect_client_reads_writes_and_streams_and_tasks_may_be_tried_again(server, tmp_path):
    """Needs what `pip install "gimbalmq[pipelines]"` brings."""
    for module in ("grpc", "pandas"):
        pytest.importorskip(module)
    job = Path(__file__).with_name("connect_job.py")
    with EmbeddedCluster(processes=True) as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic, queues=2)
        with Producer("connect", nameserver=cluster.nameserver) as producer:
            for number in range(4):
                producer.send_batch(
                    [Message("orders", f"{number}-{i:03}".encode()) for i in range(100)]
                )
        with Admin(cluster.nameserver) as admin:
            stored = [
                (queue.queue_id, offset)
                for queue, place in admin.offsets("connect", "orders").items()
                for offset in range(place.minimum, place.maximum)
            ]
        arguments = (server, cluster.nameserver, "orders", "copies", str(tmp_path))
        done = subprocess.run(
            [sys.executable, str(job), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["client"] == "pyspark.sql.connect.session"
    assert len(seen["read"]) == 400
    assert [tuple(place) for place in seen["read"]] == sorted(stored)
    assert seen["streamed"] == sorted(f"{n}-{i:03}" for n in range(4) for i in range(100))
