"""Client instances by client id, shared by the producers and consumers of this process.

A broker knows one registration per connection, so everything with one client id must share its
connections. The last user stops the instance. After a fork the child starts with none: threads
do not survive a fork, and the parent's sockets must not be used twice.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from gimbalmq.client.access import Access
from gimbalmq.client.naming import process_stem
from gimbalmq.core.identity import default_stem, member_id
from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.address_server import NameServerRefresh
from gimbalmq.runtime.engine import Engine
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.workers import ErrandRunner
from gimbalmq.transport.address import local_ip

__all__ = ["InstanceHolder", "SharedInstance", "settle", "share", "wire_client_id"]

_T = TypeVar("_T")
#: How long a caller waits for the engine thread, which never blocks; longer means a bug.
_ENGINE_ANSWER_S = 30.0


def wire_client_id(
    client_id: str | None, strategy: str, *, rejoin_grace_s: float | None = None
) -> str:
    """The id that brokers and members see: the user's name, or a unique one, and the token."""
    stem = process_stem(client_id)
    if stem is None:
        if rejoin_grace_s is not None:
            raise ConfigurationError(
                "rejoin_grace_s waits for a member to come back under its name: give client_id, "
                "the same after each restart, or leave rejoin_grace_s out"
            )
        stem = default_stem(local_ip(), os.getpid(), secrets.token_hex(4))
    return member_id(stem, strategy, rejoin_grace_s=rejoin_grace_s)


def settle(future: Future[_T], action: Callable[[], _T]) -> None:
    """Run something for a thread that waits for its result, or for what it raises."""
    try:
        future.set_result(action())
    except Exception as error:  # noqa: BLE001 - raised again on the thread that waits
        future.set_exception(error)


class InstanceHolder(Protocol):
    """A running instance, and the way to its driver; here a thread, elsewhere an event loop."""

    instance: ClientInstance

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the driver's side, soon."""


class SharedInstance:
    """An instance on its engine thread, and the connections of the threads that call inline."""

    def __init__(self, instance: ClientInstance, access: Access) -> None:
        self.instance = instance
        self.access = access
        limit_s = access.reach.connect_timeout_s
        self.pool = ConnectionPool(connect_timeout_s=limit_s, reach=access.reach)
        self._engine = Engine(
            instance.client_id, instance, connect_timeout_s=limit_s, reach=access.reach
        )
        self.users = 0

    def start(self) -> None:
        """Start the engine thread and the instance's timers."""
        self._engine.start()
        self.run(lambda: self.instance.attach(self._engine))
        source = self.access.source
        if source.changes:
            self.run(lambda: NameServerRefresh(self.instance, source.addresses_now))

    def close(self) -> None:
        """Stop the thread and close every connection."""
        self._engine.stop()
        self.pool.close()

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the engine thread, soon."""
        self._engine.post(action)

    @property
    def engine(self) -> Engine:
        """What runs the instance."""
        return self._engine

    @property
    def errands(self) -> ErrandRunner:
        """Whose thread may run quick listeners."""
        return self._engine

    @property
    def on_engine_thread(self) -> bool:
        """Whether the caller is the engine thread, which must not wait."""
        return self._engine.is_current

    def run(self, action: Callable[[], _T]) -> _T:
        """Run something on the engine thread and return its result."""
        future: Future[_T] = Future()
        self._engine.post(lambda: settle(future, action))
        return future.result(_ENGINE_ANSWER_S)

    def inline(self, flow: Flow[_T]) -> _T:
        """Run a flow on the calling thread, over connections of its own."""
        return run_inline(flow, self.pool)

    def release(self) -> None:
        """One user less; the last one closes."""
        _registry().release(self)


class _Registry:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[object, SharedInstance] = {}

    def share(self, client_id: str, access: Access, settings: InstanceSettings) -> SharedInstance:
        key = client_id, access.source
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                nameservers = NameServers(access.source.addresses_now())
                instance = ClientInstance(client_id, nameservers, settings)
                shared = SharedInstance(instance, access)
                shared.start()
                self._shared[key] = shared
            elif shared.access.reach != access.reach:
                raise ConfigurationError(
                    f"client '{client_id}' is running with other keys, TLS or address_map: give "
                    "all that share a client_id the same, or another client_id"
                )
            shared.users += 1
            return shared

    def release(self, shared: SharedInstance) -> None:
        with self._lock:
            shared.users -= 1
            last = shared.users == 0
            if last:
                self._shared = {k: one for k, one in self._shared.items() if one is not shared}
        if last:
            shared.close()


#: One registry per process id: a forked child makes its own.
_registries: dict[int, _Registry] = {}


def _registry() -> _Registry:
    found = _registries.get(os.getpid())
    # setdefault is atomic: two threads that come first together get the same one.
    return found if found is not None else _registries.setdefault(os.getpid(), _Registry())


def share(client_id: str, access: Access, settings: InstanceSettings) -> SharedInstance:
    """The running instance of that client id, started if need be; pair it with `release`.

    Raises:
        ConfigurationError: it runs, but reaches its cluster in another way.
    """
    return _registry().share(client_id, access, settings)
