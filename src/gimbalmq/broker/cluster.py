"""A whole cluster in one line: name server and brokers, started, stopped, killed, restarted.

Decides folders, ports and the life of the parts; `hosts` decides where they run: in a thread of
this process, or each in a process of its own, which can be killed for real.
"""

from __future__ import annotations

import functools
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from gimbalmq.broker import probe
from gimbalmq.broker.access import Account
from gimbalmq.broker.hosts import Host, LoopHost, ProcessHost
from gimbalmq.broker.peer import Limits
from gimbalmq.broker.plans import (
    BrokerPlan,
    NameServerPlan,
    Plan,
    broker_names,
    nameserver_ports,
)
from gimbalmq.broker.ports import PortClaims, listen
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store import FlushPolicy, StoreOptions
from gimbalmq.broker.store.files import disk_errors
from gimbalmq.broker.tls import ServerTls
from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.wire.acl import Credentials

__all__ = ["EmbeddedBroker", "EmbeddedCluster"]


class EmbeddedBroker:
    """A broker of a running cluster."""

    def __init__(
        self, name: str, address: str, is_running: Callable[[], bool], pid: Callable[[], int]
    ) -> None:
        #: Its name, as in `MessageQueue.broker`.
        self.name = name
        #: `host:port` for clients.
        self.address = address
        self._is_running = is_running
        self._pid = pid

    @property
    def pid(self) -> int:
        """Id of the process that it runs in; changes with a restart unless that is this one."""
        return self._pid()

    @property
    def running(self) -> bool:
        """Whether it serves."""
        return self._is_running()

    def __repr__(self) -> str:
        return f"EmbeddedBroker(name={self.name!r}, address={self.address!r})"


class EmbeddedCluster:
    """A name server and brokers in pure Python, on the loopback interface unless told otherwise.

    `brokers` is their number (named `broker-a`, `broker-b`, ...) or their names. `data` is a folder
    that keeps everything; without it, everything goes with the cluster. `nameserver_port` 0 means
    any free port; so does a port of `broker_ports` that is 0 or not given. `host` is the interface
    to listen on, `advertise` the address that clients use where it is not the same (with
    `0.0.0.0`, every interface). Of several `nameservers` the first is called `nameserver` and has
    the given port, the others `nameserver-2` and so on. `settings` changes what brokers do
    (`BrokerSettings`), `store` how they keep messages (`StoreOptions`); `faithful` switches off
    what they do better than Java's. `accounts` switches access control on, `tls` (`ServerTls`)
    makes brokers and name server take TLS beside plain text.

    The servers run in one thread of this process, or with `processes=True` each in a process of
    its own, so that `kill` is a real SIGKILL.

        with EmbeddedCluster(brokers=2) as cluster:
            cluster.create_topic("orders", queues=8)
            producer = Producer("shop", nameserver=cluster.nameserver)
    """

    def __init__(
        self,
        brokers: int | Iterable[str] = 1,
        data: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        advertise: str | None = None,
        nameservers: int = 1,
        nameserver_port: int = 0,
        broker_ports: Iterable[int] = (),
        cluster: str = "DefaultCluster",
        faithful: bool = False,
        settings: BrokerSettings | None = None,
        store: StoreOptions | None = None,
        limits: Limits | None = None,
        accounts: Iterable[Account] = (),
        tls: ServerTls | None = None,
        processes: bool = False,
        start_timeout_s: float = 30.0,
    ) -> None:
        self._names = broker_names(brokers)
        self._data = None if data is None else Path(data).absolute()
        self._host_address = host
        self._advertised = advertise or ""
        self._nameservers = nameserver_ports(nameservers, nameserver_port)
        ports = list(broker_ports)
        self._ports = {
            name: ports[number] if number < len(ports) else 0
            for number, name in enumerate(self._names)
        }
        base = settings or BrokerSettings()
        self._settings = msgspec.structs.replace(
            base, cluster=cluster, faithful=faithful or base.faithful
        )
        self._store = store
        self._limits = limits or Limits()
        self._accounts = tuple(accounts)
        admin = next((one for one in self._accounts if one.admin), None)
        self._credentials = (
            None if admin is None else Credentials(admin.access_key, admin.secret_key)
        )
        if tls is not None:
            tls.context()  # files that cannot be used are an error here, not in a server's process
        self._tls = tls
        self._processes = processes
        self._start_timeout_s = start_timeout_s
        #: Ours also while a server is killed and to be restarted.
        self._claims = PortClaims()
        self._folder: Path | None = None
        self._host: Host | None = None
        self._plans: dict[str, Plan] = {}
        self._brokers: tuple[EmbeddedBroker, ...] = ()

    @property
    def nameserver(self) -> str:
        """`host:port`, several of them joined by `;`, as clients take it."""
        self._started()
        return ";".join(self._plans[name].address for name in self._nameservers)

    @property
    def brokers(self) -> tuple[EmbeddedBroker, ...]:
        """The brokers, in the order of their names' declaration."""
        self._started()
        return self._brokers

    @property
    def folder(self) -> Path:
        """Where configuration and messages are."""
        return self._started()

    def start(self) -> Self:
        """Start all servers and wait until the name server knows the brokers.

        Raises EngineError (StoreError when a folder cannot be used) if that fails; nothing keeps
        running then.
        """
        if self._folder is not None:
            raise StateError("this cluster is already running: stop it first, or make another one")
        if self._data is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gimbalmq-cluster-"))
        else:
            with disk_errors("make the data directory", self._data):
                self._data.mkdir(parents=True, exist_ok=True)
            self._folder = self._data
        try:
            self._host = (
                ProcessHost(self._start_timeout_s)
                if self._processes
                else LoopHost(self._start_timeout_s)
            )
            self._lay_out(self._folder)
            for plan in self._plans.values():
                self._host.start(plan)
            self._wait_registered(self._brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything cleanly: brokers first, they say good-bye. Harmless when stopped."""
        if self._host is not None:
            for name in reversed(list(self._plans)):
                self._host.stop(name)
            self._host.close()
            self._host = None
        for plan in self._plans.values():
            # What never started still holds its port.
            plan.release_listener()
        self._claims.close()
        if self._data is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._plans, self._brokers, self._folder = {}, (), None

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
        """End a broker, or `nameserver`, as a crash would.

            cluster.kill("broker-a")

        No good-bye, nothing saved; `restart` brings it back.
        """
        self._running_host().kill(self._plan(name).name)

    def restart(self, name: str) -> None:
        """Start a broker, or `nameserver`, again on its port and data, and wait until it serves.

            cluster.restart("broker-a")

        One that still runs is stopped cleanly first.
        """
        plan = self._plan(name)
        host = self._running_host()
        host.stop(name)
        host.start(plan)
        if name in self._nameservers:
            self._wait_registered([broker for broker in self._brokers if broker.running])
        else:
            self._wait_registered([broker for broker in self._brokers if broker.name == name])

    def pause(self, name: str) -> None:
        """Freeze a server (SIGSTOP); needs `processes=True`."""
        self._running_host().pause(self._plan(name).name)

    def resume(self, name: str) -> None:
        """Let a frozen server go on."""
        self._running_host().resume(self._plan(name).name)

    def check(self) -> None:
        """EngineError when a server has ended by itself."""
        host = self._running_host()
        for name in self._plans:
            host.check(name)

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        brokers: Iterable[str] | None = None,
        permission: int = 6,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        """Make a topic with `queues` queues on each broker (or each of `brokers`).

            cluster.create_topic("orders", queues=4)

        Waits until the name server gives its route, so that every client sees it at once.
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
            lambda: all(
                wanted.items() <= probe.write_queues(one, topic).items()
                for one in self._live_nameservers()
            ),
            timeout_s,
            f"the name server has no route for topic '{topic}'",
        )

    def _lay_out(self, folder: Path) -> None:
        for name, wanted in self._nameservers.items():
            listener = self._listen(wanted, f"name server '{name}'")
            plan: Plan = NameServerPlan(
                name=name,
                host=self._host_address,
                port=listener.getsockname()[1],
                folder=str(folder / name),
                limits=self._limits,
                advertised=self._advertised,
                tls=self._tls,
            )
            plan.listener = listener
            self._plans[name] = plan
        nameservers = tuple(plan.address for plan in self._plans.values())
        store = self._store or StoreOptions(
            flush=FlushPolicy.NONE if self._data is None else FlushPolicy.INTERVAL
        )
        brokers = []
        for name in self._names:
            listener = self._listen(self._ports[name], f"broker '{name}'")
            port = listener.getsockname()[1]
            plan = BrokerPlan(
                name=name,
                host=self._host_address,
                port=port,
                folder=str(folder / name),
                limits=self._limits,
                advertised=self._advertised,
                tls=self._tls,
                nameservers=nameservers,
                settings=msgspec.structs.replace(self._settings, name=name, port=port),
                store=store,
                accounts=self._accounts,
            )
            plan.listener = listener
            self._plans[name] = plan
            brokers.append(
                EmbeddedBroker(
                    name,
                    plan.address,
                    functools.partial(self._is_running, name),
                    functools.partial(self._pid, name),
                )
            )
        self._brokers = tuple(brokers)

    def _listen(self, port: int, what: str) -> socket.socket:
        return listen(self._host_address, port, what=what, claims=self._claims)

    def _pid(self, name: str) -> int:
        return self._running_host().pid(name)

    def _is_running(self, name: str) -> bool:
        return self._host is not None and self._host.is_running(name)

    def _live_nameservers(self) -> list[str]:
        return [self._plans[name].address for name in self._nameservers if self._is_running(name)]

    def _wait_registered(self, brokers: Iterable[EmbeddedBroker]) -> None:
        addresses = [broker.address for broker in brokers]
        self._wait_until(
            lambda: all(probe.lists_brokers(one, addresses) for one in self._live_nameservers()),
            self._start_timeout_s,
            "the name server does not list all brokers",
        )

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float, complaint: str) -> None:
        probe.wait_until(condition, timeout_s, lambda: complaint, check=self.check)

    def _chosen(self, names: Iterable[str] | None) -> list[EmbeddedBroker]:
        if names is None:
            return [broker for broker in self.brokers if broker.running]
        known = {broker.name: broker for broker in self.brokers}
        for name in (listed := list(names)):
            if name not in known:
                raise ConfigurationError(f"no broker '{name}': there are {', '.join(known)}")
        return [known[name] for name in listed]

    def _plan(self, name: str) -> Plan:
        self._started()
        if name not in self._plans:
            raise ConfigurationError(
                f"no server '{name}' in this cluster: there are {', '.join(self._plans)}"
            )
        return self._plans[name]

    def _running_host(self) -> Host:
        self._started()
        assert self._host is not None
        return self._host

    def _started(self) -> Path:
        if self._folder is None or self._host is None:
            raise StateError("this cluster is not running: call start() or use it with 'with'")
        return self._folder

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a cluster runs in the process that started it and cannot be pickled")
