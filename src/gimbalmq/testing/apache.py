"""The real Apache RocketMQ on this machine: fetched, started, watched and stopped.

Decides how a cluster is laid out (folders, ports, configuration) and when it is ready. The
processes themselves are the business of `processes`, the files that of `jars`.

It listens on the loopback interface. RocketMQ has no setting for this in 4.9.5, nor for the
replication port (`listenPort` + 1) in any version: those are open on all interfaces, so run it
on machines that are yours.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gimbalmq.broker import probe
from gimbalmq.broker.access import Account
from gimbalmq.broker.plans import NAMESERVER, broker_names
from gimbalmq.broker.ports import PortClaims
from gimbalmq.broker.tls import ServerTls
from gimbalmq.errors import ConfigurationError, EngineError, StateError
from gimbalmq.testing.classes import class_path
from gimbalmq.testing.guarded import (
    access_settings,
    admin_credentials,
    tls_flags,
)
from gimbalmq.testing.jars import VERSIONS, rocketmq_bundle
from gimbalmq.testing.mqadmin import mqadmin
from gimbalmq.testing.peers import JavaPeer
from gimbalmq.testing.processes import JavaProcess
from gimbalmq.testing.servers import ServerFactory

__all__ = ["ApacheBroker", "ApacheRocketMQ"]

#: A broker also listens on its port - 2 (a second door for clients) and + 1 (replication).
_BROKER_NEIGHBOURS: Final = (-2, 1)

#: A 5.x broker takes up to 21 s to shut down.
_CLEAN_STOP_S: Final = 40.0


class ApacheBroker:
    """A broker of a running cluster."""

    def __init__(self, name: str, address: str, process: JavaProcess) -> None:
        #: Its name, as in `MessageQueue.broker`.
        self.name = name
        #: `host:port` for clients.
        self.address = address
        self._process = process

    @property
    def pid(self) -> int:
        """Process id; changes with a restart."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process runs (or is paused)."""
        return self._process.running

    def __repr__(self) -> str:
        return f"ApacheBroker(name={self.name!r}, address={self.address!r})"


class ApacheRocketMQ:
    """A name server and brokers of Apache RocketMQ `version`, as processes of this machine.

    `brokers` is their number (named `broker-a`, `broker-b`, ...) or their names. `data` is a folder
    that keeps the messages; without it they go with the cluster. `broker_config` and
    `nameserver_config` add RocketMQ's own settings or override ours. `nameserver_port` 0 means
    any free port. `accounts` switches access control on (5.x: one administrator), `tls` gives the
    servers a certificate of their own. `benchmark` gives brokers the memory and the compiler that
    measurements need.

    The first use of a version downloads it; Java 17 or newer is needed (see `find_java`). Every
    process ends when this one does, however it ends.

        with ApacheRocketMQ(brokers=2) as cluster:
            cluster.create_topic("orders", queues=8)
            producer = Producer("shop", nameserver=cluster.nameserver)
    """

    def __init__(
        self,
        version: str = VERSIONS[0],
        brokers: int | Iterable[str] = 1,
        data: str | Path | None = None,
        *,
        nameserver_port: int = 0,
        broker_config: Mapping[str, str] | None = None,
        nameserver_config: Mapping[str, str] | None = None,
        accounts: Iterable[Account] = (),
        tls: ServerTls | None = None,
        benchmark: bool = False,
        start_timeout_s: float = 180.0,
        stop_timeout_s: float | None = None,
    ) -> None:
        rocketmq_bundle(version)
        self.version = version
        self._names = broker_names(brokers)
        self._data = None if data is None else Path(data).absolute()
        self._nameserver_port = nameserver_port
        self._broker_config = dict(broker_config or {})
        self._nameserver_config = dict(nameserver_config or {})
        self._benchmark = benchmark
        self._accounts = tuple(accounts)
        self._credentials = admin_credentials(self._accounts)
        self._tls = tls
        self._start_timeout_s = start_timeout_s
        # Messages that nobody keeps need no long good-bye.
        default_stop_s = 1.0 if data is None else _CLEAN_STOP_S
        self._stop_timeout_s = default_stop_s if stop_timeout_s is None else stop_timeout_s
        self._claims = contextlib.ExitStack()
        self._folder: Path | None = None
        self._processes: dict[str, JavaProcess] = {}
        self._brokers: tuple[ApacheBroker, ...] = ()
        self._peers: list[JavaPeer] = []
        self._address = ""

    @property
    def nameserver(self) -> str:
        """`127.0.0.1:port`."""
        self._started()
        return self._address

    @property
    def brokers(self) -> tuple[ApacheBroker, ...]:
        """The brokers, in the order of their names' declaration."""
        self._started()
        return self._brokers

    @property
    def folder(self) -> Path:
        """Where configuration, logs and messages are."""
        return self._started()

    def start(self) -> Self:
        """Fetch what is missing, start all processes and wait until the brokers are known.

        Raises EngineError when that fails, with the end of the log; nothing keeps running then.
        """
        if self._folder is not None:
            raise StateError("this cluster is already running: stop it first, or make another one")
        classes = class_path(self.version)
        try:
            self._folder = self._claim_folder()
            self._lay_out(self._folder, classes)
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, timeout_s: float | None = None) -> None:
        """Stop all processes: SIGTERM, and SIGKILL after `timeout_s`. Harmless when stopped."""
        for peer in self._peers:
            peer.stop()
        self._peers.clear()
        limit_s = self._stop_timeout_s if timeout_s is None else timeout_s
        servers = [process for name, process in self._processes.items() if name != NAMESERVER]
        # Brokers first: they say good-bye to the name server.
        for group in (servers, [self._processes[NAMESERVER]] if self._processes else []):
            for process in group:
                process.ask_to_stop()
            deadline = time.monotonic() + limit_s
            for process in group:
                process.wait_stopped(timeout_s=max(0.0, deadline - time.monotonic()))
        self._processes, self._brokers, self._folder = {}, (), None
        # Releases the ports and the data folder, or removes the temporary one.
        self._claims.close()

    def __enter__(self) -> Self:
        return self if self._folder is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def kill(self, name: str) -> None:
        """End a broker, or `nameserver`, as a crash would (SIGKILL).

            cluster.kill("broker-a")

        `restart` brings it back.
        """
        self._process(name).kill()

    def restart(self, name: str) -> None:
        """Start a broker, or `nameserver`, again on its port and data, and wait until it serves.

            cluster.restart("broker-a")

        One that still runs is stopped cleanly first.
        """
        process = self._process(name)
        process.ask_to_stop()
        process.wait_stopped(timeout_s=_CLEAN_STOP_S)
        process.start()
        self._wait_ready(name)
        if name == NAMESERVER:
            # Brokers register again at their next interval.
            running = [broker for broker in self._brokers if broker.running]
            self._wait_registered(running)
        else:
            self._wait_registered([broker for broker in self._brokers if broker.name == name])

    def pause(self, name: str) -> None:
        """Freeze a broker, or `nameserver` (SIGSTOP): connections stay, answers do not come."""
        self._process(name).pause()

    def resume(self, name: str) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self._process(name).resume()

    def check(self) -> None:
        """EngineError when a process has ended by itself."""
        for process in self._processes.values():
            if not process.running:
                raise EngineError(
                    f"{process.name} has ended (exit code {process.exit_code}): "
                    f"see its logs in {self._folder}"
                )

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        brokers: Iterable[str] | None = None,
        permission: int = 6,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Make a topic with `queues` queues on each broker (or each of `brokers`).

            cluster.create_topic("orders", queues=4)

        Waits until the name server gives its route, so that every client sees it at once.
        `attributes` are those of 5.x, for example `{"message.type": "FIFO"}`.
        """
        chosen = self._chosen(brokers)
        for broker in chosen:
            probe.create_topic(
                broker.address,
                topic,
                queues=queues,
                permission=permission,
                order=order,
                attributes=attributes or {},
                credentials=self._credentials,
            )
        wanted = {broker.name: queues for broker in chosen}
        self._wait_until(
            lambda: wanted.items() <= probe.write_queues(self._address, topic).items(),
            timeout_s,
            f"the name server has no route for topic '{topic}'",
        )

    def mqadmin(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run RocketMQ's own command line (`topicList`, `clusterList`, ...) and return its output.

        Takes about four seconds; `java_peer().admin()` answers many questions much faster.
        """
        self._started()
        return mqadmin(self._address, *arguments, version=self.version, timeout_s=timeout_s)

    def java_peer(self, **options: Any) -> JavaPeer:
        """Start a Java process for clients of this cluster; options as of `JavaPeer`.

        Stopped with the cluster, if not before.
        """
        settings: dict[str, Any] = {"version": self.version} | options
        peer = JavaPeer(self.nameserver, **settings).start()
        self._peers.append(peer)
        return peer

    def _claim_folder(self) -> Path:
        if self._data is None:
            temporary = tempfile.TemporaryDirectory(
                prefix="gimbalmq-apache-", ignore_cleanup_errors=True
            )
            return Path(self._claims.enter_context(temporary))
        self._data.mkdir(parents=True, exist_ok=True)
        lock = self._claims.enter_context((self._data / "cluster.lock").open("a"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineError(
                f"another cluster is using {self._data}: stop it, or choose another data folder"
            ) from None
        return self._data

    def _lay_out(self, folder: Path, classes: str) -> None:
        factory = ServerFactory(self.version, folder, classes, tls_flags(self._tls))
        access = access_settings(self.version, self._accounts, factory.home / "conf")
        settings = access | self._broker_config
        # Ours also while a server has not bound its port yet, or is killed and to be restarted.
        ports = self._claims.enter_context(PortClaims())
        port = self._nameserver_port
        if port:
            ports.take(port, what="the name server", option="nameserver_port")
        else:
            port = ports.choose()
        self._address = f"127.0.0.1:{port}"
        self._processes[NAMESERVER] = factory.nameserver(port, self._nameserver_config)
        brokers = []
        for name in self._names:
            port = ports.choose(also=_BROKER_NEIGHBOURS)
            process = factory.broker(name, port, self._address, settings, benchmark=self._benchmark)
            self._processes[name] = process
            brokers.append(ApacheBroker(name, f"127.0.0.1:{port}", process))
        self._brokers = tuple(brokers)

    def _start_all(self) -> None:
        self._processes[NAMESERVER].start()
        # A broker that finds no name server asks again only after its interval.
        self._wait_ready(NAMESERVER)
        for broker in self._brokers:
            self._processes[broker.name].start()
        for broker in self._brokers:
            self._wait_ready(broker.name)
        self._wait_registered(self._brokers)

    def _wait_ready(self, name: str) -> None:
        self._processes[name].wait_for_line("boot success", timeout_s=self._start_timeout_s)

    def _wait_registered(self, brokers: Iterable[ApacheBroker]) -> None:
        addresses = [broker.address for broker in brokers]
        self._wait_until(
            lambda: probe.lists_brokers(self._address, addresses),
            self._start_timeout_s,
            "the name server does not list all brokers",
        )

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float, complaint: str) -> None:
        probe.wait_until(condition, timeout_s, lambda: f"{complaint} (logs: {self._folder})")

    def _chosen(self, names: Iterable[str] | None) -> list[ApacheBroker]:
        if names is None:
            return [broker for broker in self._brokers if broker.running]
        known = {broker.name: broker for broker in self.brokers}
        for name in (listed := list(names)):
            if name not in known:
                raise ConfigurationError(f"no broker '{name}': there are {', '.join(known)}")
        return [known[name] for name in listed]

    def _process(self, name: str) -> JavaProcess:
        self._started()
        if name not in self._processes:
            raise ConfigurationError(
                f"no process '{name}' in this cluster: there are {', '.join(self._processes)}"
            )
        return self._processes[name]

    def _started(self) -> Path:
        if self._folder is None:
            raise StateError("this cluster is not running: call start() or use it with 'with'")
        return self._folder
