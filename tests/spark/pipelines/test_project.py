from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gimbalmq import Message, Producer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.pipelines.project import write_project
from gimbalmq.spark.session import _java_home


def test_a_folder_that_exists_is_left_alone(tmp_path):
    with pytest.raises(ConfigurationError, match="exists already"):
        write_project(tmp_path, nameserver="127.0.0.1:9876", topic="orders")


def test_a_project_says_where_it_reads_and_keeps_its_state(tmp_path):
    files = write_project(tmp_path / "tables", nameserver="127.0.0.1:9876", topic="orders")
    assert all(file.is_file() for file in files)
    spec = files[0].read_text()
    assert f"storage: {(tmp_path / 'tables' / 'storage').as_uri()}" in spec
    assert 'spark.gimbalmq.nameserver: "127.0.0.1:9876"' in spec


@pytest.mark.spark
@pytest.mark.product
@pytest.mark.timeout(400)
def test_a_project_runs_as_it_is(tmp_path):
    """Needs what `pip install "gimbalmq[pipelines]"` brings."""
    for module in ("grpc", "pandas", "yaml"):
        pytest.importorskip(module)
    runner = shutil.which("spark-pipelines", path=str(Path(sys.executable).parent))
    assert runner is not None
    with EmbeddedCluster(processes=True) as cluster:
        cluster.create_topic("orders", queues=2)
        with Producer("projects", nameserver=cluster.nameserver) as producer:
            producer.send_batch([Message("orders", b"x", tags="paid") for _ in range(50)])
        write_project(tmp_path / "tables", nameserver=cluster.nameserver, topic="orders")
        variables = dict(
            os.environ,
            JAVA_HOME=str(_java_home()),
            PYSPARK_PYTHON=sys.executable,
            SPARK_LOCAL_IP="127.0.0.1",
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        )
        done = subprocess.run(
            [runner, "run"],
            cwd=tmp_path / "tables",
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    tables = {folder.name for folder in (tmp_path / "tables" / "spark-warehouse").iterdir()}
    assert {"messages", "load_by_hour", "messages_by_tag"} <= tables
