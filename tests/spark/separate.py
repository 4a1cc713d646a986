"""Runs a Spark job in a process of its own, with executors that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys

from gimbalmq.spark.session import _java_home


def run_on_cluster(script, *arguments, timeout_s=200):
    """Run a job to its end; its own words are part of a failure."""
    variables = dict(
        os.environ,
        JAVA_HOME=str(_java_home()),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
