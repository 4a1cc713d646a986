"""Client instances on an event loop, by client id: as `client.shared`, for coroutines.

An instance belongs to the loop it was started on. Another loop gets its own, and using an object
from a loop that is not its own is an error, not a hang.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from gimbalmq.client.access import Access
from gimbalmq.client.shared import check_alike, new_instance, running_id, settle
from gimbalmq.errors import StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.runtime.address_server import NameServerRefresh
from gimbalmq.runtime.aio import AioDriver
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.transport.nameservers import NameServerSource

__all__ = ["LoopInstance", "check_loop", "share"]

_T = TypeVar("_T")


class LoopInstance:
    """An instance on the running loop, and whoever uses it."""

    def __init__(self, instance: ClientInstance, access: Access) -> None:
        self.instance = instance
        self.access = access
        self.driver = AioDriver(
            instance, connect_timeout_s=access.reach.connect_timeout_s, reach=access.reach
        )
        self.users = 0
        self._thread_id = threading.get_ident()
        instance.attach(self.driver)
        if access.source.changes:
            NameServerRefresh(instance, access.source.addresses_now)

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the loop, soon; from any thread."""
        self.driver.post(action)

    def ask(self, question: Callable[[], _T], timeout_s: float) -> _T:
        """Put a question on the loop from any thread, which waits unless it is the loop's own.

        Raises:
            StateError: the loop has ended.
            TimeoutError: the loop was busy for all that time.
        """
        if threading.get_ident() == self._thread_id:
            return question()
        answer: Future[_T] = Future()
        self.post(lambda: settle(answer, question))
        return answer.result(timeout_s)

    async def run(self, flow: Flow[_T]) -> _T:
        """Run a flow over the instance's connections."""
        return await self.driver.run(flow)

    async def release(self) -> None:
        """One user less; the last one closes."""
        self.users -= 1
        if not self.users:
            for key in [key for key, one in _instances.items() if one is self]:
                del _instances[key]
            await self.driver.close()


#: Instances in use; the loop is part of the key, so threads with loops of their own do not meet.
_instances: dict[tuple[asyncio.AbstractEventLoop, str, NameServerSource], LoopInstance] = {}


async def share(
    client_id: str, access: Access, settings: InstanceSettings, *, any_strategy: bool = False
) -> LoopInstance:
    """The instance of that client id on the running loop; pair it with `release`.

    With `any_strategy` one whose id differs in nothing but the strategy will do as well.

    Raises:
        ConfigurationError: it runs, but reaches its cluster in another way or has other timers.
    """
    loop, source = asyncio.get_running_loop(), access.source
    shared = _find(loop, client_id, source, any_strategy=any_strategy)
    if shared is None:
        addresses = source.addresses
        if source.changes:  # an address server has to be asked, which waits
            addresses = await asyncio.to_thread(source.addresses_now)
            # Somebody else may have been quicker.
            shared = _find(loop, client_id, source, any_strategy=any_strategy)
        if shared is None:
            shared = LoopInstance(new_instance(client_id, addresses, settings), access)
            _instances[loop, client_id, source] = shared
    check_alike(shared.instance, shared.access, access, settings)
    shared.users += 1
    return shared


def _find(
    loop: asyncio.AbstractEventLoop,
    client_id: str,
    source: NameServerSource,
    *,
    any_strategy: bool,
) -> LoopInstance | None:
    ids = [one for running, one, known in _instances if (running, known) == (loop, source)]
    found = running_id(client_id, ids, any_strategy=any_strategy)
    return None if found is None else _instances[loop, found, source]


def check_loop(shared: LoopInstance, what: str) -> None:
    """Refuse to be used from elsewhere.

    Raises:
        StateError: another loop is running, or none.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not shared.driver.loop:
        raise StateError(
            f"{what} belongs to the event loop it was started on: use it there, or make one for "
            "each loop"
        )
