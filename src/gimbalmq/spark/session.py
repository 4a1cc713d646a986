"""A Spark session on this machine, ready for the source: quiet, quick, and with a Java that works.

For notebooks, tests and demos. On a cluster build the session as usual: the source needs none of
this. Every setting can be overridden.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gimbalmq.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_session"]

#: Errors only; the gateway would say otherwise that its level was changed.
_QUIET_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

#: Spark always asks for a module that run-time images lack and that other Javas warn about; only
#: MLlib's linear algebra uses it, and does without.
_JAVA_SCRIPT: Final = """\
#!/bin/bash
arguments=()
for argument in "$@"; do
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""

#: The path of a Unix socket is short; Spark adds up to 47 characters to its folder.
_SOCKET_FOLDER_CHARS_MAX: Final = 61


def local_session(
    app_name: str = "gimbalmq",
    *,
    cores: int | None = None,
    driver_memory: str = "2g",
    quiet: bool = True,
    jvm_flags: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, started when there is none.

    Uses `JAVA_HOME`, then the search path, then the Java of the `java` extra; nothing has to be
    installed beside the package. `config` wins over everything that is set here.

    Raises:
        EngineError: there is no Java 17 or newer, or it does not start.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    # getOrCreate alone would try to change settings of a session that runs.
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    number = cores or os.cpu_count() or 1
    settings = _settings(number, driver_memory)
    flags = list(jvm_flags)
    if quiet:
        settings["spark.ui.showConsoleProgress"] = "false"
        file = _written("log4j2.properties", _QUIET_LOGGING)
        flags.append(f"-Dlog4j2.configurationFile=file:{file}")
    settings["spark.driver.extraJavaOptions"] = " ".join(flags)
    builder = SparkSession.builder.master(f"local[{number}]").appName(app_name)
    for key, value in (settings | dict(config or {})).items():
        builder = builder.config(key, value)
    environment = {
        "JAVA_HOME": str(_java_home()),
        # The JVM would look for `python3` on its path, which may lack the package.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }
    with _environment(environment):
        try:
            session: SparkSession = builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise EngineError(
                f"Spark's Java process did not start: {error}. Its own words are on standard error"
            ) from error
    return session


def _settings(cores: int, driver_memory: str) -> dict[str, str]:
    local_sockets = len(tempfile.gettempdir()) <= _SOCKET_FOLDER_CHARS_MAX
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": driver_memory,
        "spark.sql.shuffle.partitions": str(cores),
        # A third of the time per task.
        "spark.python.unix.domain.socket.enabled": str(local_sockets).lower(),
        # Checkpoints on a local disk: the default starts a process for every file.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager"
        ),
    }


def _java_home() -> Path:
    """A folder whose `bin/java` starts the Java to use."""
    from gimbalmq.testing.jvm import LEAST_JAVA, find_java

    try:
        java = find_java().java
    except EngineError as error:
        raise EngineError(
            f"Spark needs Java {LEAST_JAVA} or newer, and there is none: install a JDK and set "
            'JAVA_HOME, or: pip install "gimbalmq[java]"'
        ) from error
    script = _JAVA_SCRIPT.format(java=shlex.quote(str(java)))
    return _written("bin/java", script, mode=0o755).parents[1]


def _written(name: str, text: str, *, mode: int = 0o644) -> Path:
    """A file with this text in the user's cache, the same for every process that wants it."""
    from gimbalmq.testing.cache import cache_folder

    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = cache_folder() / "spark" / digest / name
    if not file.is_file():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place: another process may be starting Spark at this moment.
            with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as aside:
                aside.write(text)
            Path(aside.name).chmod(mode)
            Path(aside.name).replace(file)
        except OSError as error:
            raise EngineError(
                f"the cache folder {file.parent} cannot be used: {error}. "
                "Set GIMBALMQ_CACHE to a folder that can be written"
            ) from error
    return file


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the start of the JVM, which keeps them; put the old ones back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
