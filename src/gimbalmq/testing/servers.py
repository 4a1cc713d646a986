"""The processes of a RocketMQ cluster: their folders, configuration files and JVM options.

Decides how each server is laid out and called; `apache` decides when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gimbalmq.testing.jvm import find_java
from gimbalmq.testing.processes import QUICK_START_FLAGS, JavaProcess

__all__ = ["ServerFactory", "lay_out_home"]

CLUSTER_NAME: Final = "DefaultCluster"

#: Both versions unmap files by ways that modules of Java 9+ hide.
_MODULE_FLAGS: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
_NAMESERVER_FLAGS: Final = ("-Xmx256m", *QUICK_START_FLAGS)
_BROKER_FLAGS: Final = ("-Xmx700m", "-XX:MaxDirectMemorySize=512m", *QUICK_START_FLAGS)
_BENCHMARK_FLAGS: Final = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=2g")
#: Brokers refuse sends above the first and delete old messages above the second; their defaults
#: (0.90 and 0.85) are made for servers, and a developer's disk is often fuller than that.
_DISK_FLAGS: Final = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
)

#: RocketMQ 4.x does not start without these; `user.home` is a folder of the process itself.
_LOG_FILES: Final = ("namesrv", "broker", "tools")
_LOG_SETTINGS: Final = """\
<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/logs/rocketmq.log</file>
    <encoder><pattern>%d %-5level %thread %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def lay_out_home(folder: Path) -> Path:
    """Make the folder that `ROCKETMQ_HOME` is to name, inside of `folder`."""
    home = folder / "home"
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in _LOG_FILES:
        (conf / f"logback_{name}.xml").write_text(_LOG_SETTINGS, encoding="utf-8")
    return home


class ServerFactory:
    """Makes the processes of one cluster in `folder`; starts none of them."""

    def __init__(
        self, version: str, folder: Path, classes: str, flags: tuple[str, ...] = ()
    ) -> None:
        self._version = version
        self._folder = folder
        self._classes = classes
        #: JVM options of every server.
        self._flags = flags
        self._java = str(find_java().java)
        #: What `ROCKETMQ_HOME` names.
        self.home = lay_out_home(folder)

    def nameserver(self, port: int, extra: Mapping[str, str]) -> JavaProcess:
        """A name server; `extra` adds settings or overrides ours."""
        folder = self._folder / "nameserver"
        settings = {
            "listenPort": str(port),
            # Unknown to 4.x, which ignores it.
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
        }
        main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return self._process(
            "the name server", folder, main_class, settings | dict(extra), _NAMESERVER_FLAGS
        )

    def broker(
        self, name: str, port: int, nameserver: str, extra: Mapping[str, str], *, benchmark: bool
    ) -> JavaProcess:
        """A broker; `extra` adds settings or overrides ours."""
        folder = self._folder / name
        settings = _broker_settings(folder / "store", name, port, nameserver) | dict(extra)
        memory = _BENCHMARK_FLAGS if benchmark else _BROKER_FLAGS
        main_class = "org.apache.rocketmq.broker.BrokerStartup"
        return self._process(name, folder, main_class, settings, (*memory, *_DISK_FLAGS))

    def _process(
        self,
        title: str,
        folder: Path,
        main_class: str,
        settings: Mapping[str, str],
        flags: tuple[str, ...],
    ) -> JavaProcess:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "server.conf"
        # Java properties: a backslash escapes.
        lines = (f"{key}={value.replace(chr(92), chr(92) * 2)}" for key, value in settings.items())
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [
            *(self._java, *flags, *self._flags, *_MODULE_FLAGS),
            *(f"-Duser.home={folder}", "-cp", self._classes),
            *("gimbalmq.peer.Guard", main_class, "-c", str(file)),
        ]
        return JavaProcess(
            f"{title} (RocketMQ {self._version})",
            command,
            log=folder / "stdout.log",
            environ={"ROCKETMQ_HOME": str(self.home)},
        )


def _broker_settings(store: Path, name: str, port: int, nameserver: str) -> dict[str, str]:
    """For development: small files, patient with a slow machine, quick to see a new name server."""
    return {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": name,
        "brokerId": "0",
        "namesrvAddr": nameserver,
        # Otherwise it advertises the address of another interface.
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        # The default is 1 GiB a file.
        "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
        "mappedFileSizeConsumeQueue": "600000",
        # The shortest that RocketMQ allows.
        "registerNameServerPeriod": "10000",
        # A broker drops sends that wait longer than this (200 ms and 1 s by default), one-way ones
        # without a word; a laptop that is busy with a build should not lose messages over that.
        "waitTimeMillsInSendQueue": "5000",
        "osPageCacheBusyTimeOutMills": "5000",
        "autoCreateTopicEnable": "true",
        "enablePropertyFilter": "true",
        # 5.x writes its whole timer wheel out every second, also when nothing has changed.
        "timerFlushIntervalMs": "30000",
    }
