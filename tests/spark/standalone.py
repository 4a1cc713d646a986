"""Spark's own cluster on this machine: a master and two workers on loopback, to be broken.

Every process is started in a session of its own, by which all that it starts is found again:
executors, and the Python processes of executors. Ports are free ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from gimbalmq.spark.session import _java_home

#: For one that hangs: Java takes a minute to start where other tests start theirs.
_START_S = 240
_STOP_S = 20
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_EXECUTOR = b"CoarseGrainedExecutorBackend"


def spark_environment(**more):
    """The variables with which Spark's own scripts find Java, Python and this machine."""
    return {
        **os.environ,
        "JAVA_HOME": str(_java_home()),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **more,
    }


class Session:
    """A process and everything that it started, found by the session they share."""

    def __init__(self, command, log, **settings):
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **settings
            )

    def members(self, part=b""):
        """The processes whose command line has this part."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            if int(fields[3]) == self.process.pid and fields[0] != "Z" and part in command:
                found.append(int(folder.name))
        return sorted(found)

    def kill(self):
        """End all of it at once, as a machine does that loses its power."""
        deadline = time.monotonic() + _STOP_S
        while victims := self.members():
            for pid in victims:
                kill(pid)
            self.process.poll()
            assert time.monotonic() < deadline, f"{victims} do not end"
            time.sleep(0.02)
        self.process.wait()

    def words(self):
        """What it said."""
        return self.log.read_text("utf-8", errors="replace")


def kill(pid):
    """Kill a process that may have ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class StandaloneCluster:
    """A master and two workers with a core each."""

    def __init__(self, folder):
        self._folder = folder
        self._daemons = []
        self.master = ""

    def __enter__(self):
        try:
            master = self._start("master", "master.Master", "--port", "0")
            self.master = awaited(master, _MASTER)[1]
            for name in ("worker-1", "worker-2"):
                settings = ["--cores", "1", "--memory", "1g", "--work-dir"]
                place = str(self._folder / name)
                self._start(name, "worker.Worker", *settings, place, self.master)
            for worker in self._daemons[1:]:
                awaited(worker, re.compile("Successfully registered with master"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self._daemons):
            daemon.kill()
        self._daemons.clear()

    def _start(self, name, kind, *arguments):
        command = [f"{Path(pyspark.__file__).parent}/bin/spark-class"]
        command += [f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--webui-port", "0"]
        flags = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        environment = spark_environment(SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=flags)
        log = self._folder / f"{name}.log"
        self._daemons.append(Session([*command, *arguments], log, env=environment))
        return self._daemons[-1]

    def executors(self):
        """The Java processes of executors, whatever job they belong to."""
        return [pid for daemon in self._daemons for pid in daemon.members(_EXECUTOR)]

    def python_workers(self):
        """The Python processes of executors."""
        return [pid for daemon in self._daemons for pid in daemon.members(b"pyspark.daemon")]

    def words(self):
        """What executors said last, for a failure's message."""
        logs = sorted(self._folder.glob("worker-*/*/*/stderr"), key=lambda one: one.stat().st_mtime)
        return "\n".join(
            f"== {one}\n{one.read_text('utf-8', 'replace')[-3000:]}" for one in logs[-2:]
        )

    def settings(self, **more):
        """The options of a job on this cluster, for `spark-submit --conf` or a session."""
        return {
            "spark.master": self.master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            **more,
        }


def awaited(daemon, sentence):
    """Wait until a process has said this; the match."""
    deadline = time.monotonic() + _START_S
    while (found := sentence.search(daemon.words())) is None:
        assert daemon.process.poll() is None, daemon.words()
        assert time.monotonic() < deadline, daemon.words()
        time.sleep(0.05)
    return found
