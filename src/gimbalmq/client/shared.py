"""Client instances by client id, shared by the producers and consumers of this process.

A broker knows one registration per connection, so everything with one client id must share its
connections. Consumers with different strategies have different ids, though the user gave them one
name; a producer has no strategy, and joins whichever instance of its name is running. The last user
stops the instance. After a fork the child starts with none: threads do not survive a fork, and the
parent's sockets must not be used twice.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from gimbalmq.client.access import Access
from gimbalmq.client.naming import process_stem
from gimbalmq.core.identity import default_stem, member_id, stem_of
from gimbalmq.errors import ConfigurationError, StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.address_server import NameServerRefresh
from gimbalmq.runtime.engine import Engine
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.workers import ErrandRunner
from gimbalmq.transport.address import local_ip
from gimbalmq.transport.nameservers import NameServerSource

__all__ = [
    "InstanceHolder",
    "SharedInstance",
    "check_alike",
    "new_instance",
    "running_id",
    "settle",
    "share",
    "wire_client_id",
]

_T = TypeVar("_T")
#: How long a caller waits for the engine thread, which never blocks; longer means a bug.
_ENGINE_ANSWER_S = 30.0
#: Servers close connections that were idle for so long; how often to look for these.
_UNUSED_S = 120.0
_LOOK_EVERY_S = 30.0


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


def running_id(client_id: str, running: Iterable[str], *, any_strategy: bool) -> str | None:
    """Which of the ids that run serves a client: its own, or else any of its name."""
    ids = tuple(running)
    if client_id in ids:
        return client_id
    stem = stem_of(client_id)
    return next((one for one in ids if any_strategy and stem_of(one) == stem), None)


def new_instance(
    client_id: str, addresses: tuple[str, ...], settings: InstanceSettings
) -> ClientInstance:
    """An instance that begins with any one of its name servers, so that clients spread over them."""
    nameservers = NameServers(addresses, start=secrets.randbelow(len(addresses)))
    return ClientInstance(client_id, nameservers, settings)


def check_alike(
    instance: ClientInstance, running: Access, access: Access, settings: InstanceSettings
) -> None:
    """Refuse one more user of a running instance that wants it to be otherwise.

    Raises:
        ConfigurationError: it reaches its cluster in another way, or has other timers.
    """
    if running.reach != access.reach:
        differs = "other keys, TLS or address_map"
    else:
        differs = ", ".join(
            f"{name}={have!r} instead of {want!r}"
            for name in InstanceSettings.__struct_fields__
            if (have := getattr(instance.settings, name)) != (want := getattr(settings, name))
        )
    if differs:
        raise ConfigurationError(
            f"client '{instance.client_id}' is running with {differs}: give all that share a "
            "client_id the same, or another client_id"
        )


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
        self.run(self._drop_unused)
        source = self.access.source
        if source.changes:
            self.run(lambda: NameServerRefresh(self.instance, source.addresses_now))

    def close(self) -> None:
        """Stop the thread and close every connection."""
        self._engine.stop()
        self.pool.close()

    def _drop_unused(self) -> None:
        """Close what callers have left open, now and later: servers have closed their end."""
        # First the next time: one that fails must not be the last.
        self._engine.call_later(_LOOK_EVERY_S, self._drop_unused)
        self.pool.drop_unused(self._engine.monotonic() - _UNUSED_S)

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
        """Run something on the engine thread and return its result.

        Raises:
            StateError: called on that thread, or something else keeps it.
        """
        if self.on_engine_thread:
            raise StateError(
                f"a callback on the own thread of client '{self.instance.client_id}' calls what "
                "waits for that thread: hand it to another thread (callbacks of send_async's "
                "futures run there)"
            )
        future: Future[_T] = Future()
        self._engine.post(lambda: settle(future, action))
        try:
            return future.result(_ENGINE_ANSWER_S)
        except TimeoutError as error:
            if future.done():  # what was to be run has raised it
                raise
            raise StateError(
                f"the own thread of client '{self.instance.client_id}' has been busy for "
                f"{_ENGINE_ANSWER_S:g} s: look for a callback that waits (callbacks of "
                "send_async's futures run there)"
            ) from error

    def inline(self, flow: Flow[_T]) -> _T:
        """Run a flow on the calling thread, over connections of its own."""
        return run_inline(flow, self.pool)

    def release(self) -> None:
        """One user less; the last one closes."""
        _registry().release(self)


class _Registry:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[tuple[str, NameServerSource], SharedInstance] = {}

    def share(
        self, client_id: str, access: Access, settings: InstanceSettings, *, any_strategy: bool
    ) -> SharedInstance:
        addresses: tuple[str, ...] = ()
        while True:
            with self._lock:
                shared = self._find(client_id, access, any_strategy=any_strategy)
                if shared is None and addresses:
                    shared = self._start(client_id, addresses, access, settings)
                if shared is not None:
                    check_alike(shared.instance, shared.access, access, settings)
                    shared.users += 1
                    return shared
            # Not with the lock held, which everybody needs: an address server may take its time.
            addresses = access.source.addresses_now()

    def _find(self, client_id: str, access: Access, *, any_strategy: bool) -> SharedInstance | None:
        ids = [one for one, source in self._shared if source == access.source]
        found = running_id(client_id, ids, any_strategy=any_strategy)
        return None if found is None else self._shared[found, access.source]

    def _start(
        self,
        client_id: str,
        addresses: tuple[str, ...],
        access: Access,
        settings: InstanceSettings,
    ) -> SharedInstance:
        shared = SharedInstance(new_instance(client_id, addresses, settings), access)
        try:
            shared.start()
        except BaseException:
            shared.close()
            raise
        self._shared[client_id, access.source] = shared
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


def share(
    client_id: str, access: Access, settings: InstanceSettings, *, any_strategy: bool = False
) -> SharedInstance:
    """The running instance of that client id, started if need be; pair it with `release`.

    With `any_strategy` one whose id differs in nothing but the strategy will do as well.

    Raises:
        ConfigurationError: it runs, but reaches its cluster in another way or has other timers.
    """
    return _registry().share(client_id, access, settings, any_strategy=any_strategy)
