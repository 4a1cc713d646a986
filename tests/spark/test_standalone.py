"""Reading on Spark's own cluster, whose executors have no package but the one that the job brings."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import msgspec
import pyspark
import pytest

import gimbalmq
from gimbalmq import Admin, Message, Producer
from gimbalmq.broker import EmbeddedCluster
from spark.standalone import spark_environment

JOB = Path(__file__).with_name("shipped_job.py")
SOURCES = Path(gimbalmq.__file__).parents[1]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def bare_environment(folder):
    """An environment with everything that this one has, except our package."""
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python3*/site-packages")
    # A path file inside a folder that a path file names is not read: that is how ours is found.
    (site / "others.pth").write_text(f"{Path(msgspec.__file__).parents[1]}\n")
    found = subprocess.run([folder / "bin" / "python", "-c", "import gimbalmq"], check=False)
    assert found.returncode != 0
    return site


def python_files():
    for package in ("gimbalmq", "pyspark_rocketmq"):
        for file in sorted((SOURCES / package).rglob("*.py")):
            yield file, str(file.relative_to(SOURCES))


def as_files(folder):
    """`--py-files`, where the executors' Python has what the package needs."""
    bare_environment(folder / "bare")
    with zipfile.ZipFile(folder / "gimbalmq.zip", "w") as archive:
        for file, name in python_files():
            archive.write(file, name)
    return ["--py-files", str(folder / "gimbalmq.zip")], str(folder / "bare" / "bin" / "python")


def as_archive(folder):
    """`--archives`: a whole environment, which the driver has in its folder, too."""
    site = bare_environment(folder / "environment")
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        for file, name in python_files():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_bytes(file.read_bytes())
        archive.add(folder / "environment", ".")
    return ["--archives", "environment.tar.gz#environment"], "./environment/bin/python"


@pytest.mark.product
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ship", [as_files, as_archive])
def test_executors_read_with_the_package_that_the_job_brings(
    standalone, topic_name, tmp_path, ship
):
    options, python = ship(tmp_path)
    variables = spark_environment(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable)
    with EmbeddedCluster(brokers=2, processes=True) as cluster:
        cluster.create_topic(topic_name, queues=2)
        with Producer("shippers", nameserver=cluster.nameserver, timeout_s=20) as producer:
            producer.send_batch([Message(topic_name, b"%d" % number) for number in range(1000)])
            for number in range(200):
                producer.send(Message(topic_name, b"%d" % number))
        with Admin(cluster.nameserver) as admin:
            stored = sorted(
                [queue.broker, queue.queue_id, offset]
                for queue, one in admin.offsets("shippers", topic_name).items()
                for offset in range(one.minimum, one.maximum)
            )
        settings = [f"--conf={name}={text}" for name, text in standalone.settings().items()]
        settings += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
        done = subprocess.run(
            [SUBMIT, *options, *settings, JOB, cluster.nameserver, topic_name],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-5000:] + standalone.words()
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["rows"] == stored
    assert len(stored) == 1200
    assert not any(str(SOURCES) in file for file in result["files"]), result["files"]
