"""The life of a consumer on an event loop: created, running, stopped.

Questions are put to the host directly, because it lives on the same loop; only joining and
leaving wait.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from gimbalmq.aio.shared import LoopInstance, check_loop, share
from gimbalmq.client.access import Access
from gimbalmq.client.membership import Joining, MemberLife, callback_failed
from gimbalmq.core.consumer.events import StopRequested
from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings

__all__ = ["Membership"]

_log = logging.getLogger("gimbalmq.consumer")
_T = TypeVar("_T")


class Membership(MemberLife):
    """One member of one group, from `start` to `stop`, on a loop."""

    def __init__(
        self, group: str, client_id: str, access: Access, settings: InstanceSettings
    ) -> None:
        super().__init__(group, client_id, access, settings)
        self._shared: LoopInstance | None = None
        self._ended = asyncio.Event()
        self._stopping = False
        #: News that callbacks have not heard yet, and the task that tells them.
        self._news: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._telling: asyncio.Task[None] | None = None

    @property
    def _how_to_start(self) -> str:
        return "use it in an async with statement, or await start() first"

    # ---- what the host reports ---------------------------------------------------------------

    def notify(self, callback: Callable[[_T], object], news: _T) -> None:
        """Tell one of the user's callbacks, a function or a coroutine function, in a task."""
        self._news.append((callback, news))
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._news:
            callback, news = self._news.popleft()
            try:
                outcome = callback(news)
                if inspect.isawaitable(outcome):
                    await outcome
            except (Exception, SystemExit):  # noqa: BLE001 - user code
                callback_failed(self.group, news)

    def ended(self) -> None:
        """The machine has nothing left to do."""
        self._ended.set()

    # ---- life --------------------------------------------------------------------------------

    async def start(self, build: Callable[[LoopInstance, int], ConsumerHost]) -> None:
        """Build the host on the instance (at a wall time in ms) and join the group."""
        with self.starting():
            shared = await share(self.client_id, self._access, self._settings)
            try:
                host = build(shared, shared.driver.now().wall_ms)
                await self._join(shared, host)
            except BaseException:
                await shared.release()
                raise
            self._shared, self._host = shared, host

    @staticmethod
    async def _join(shared: LoopInstance, host: ConsumerHost) -> None:
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: GimbalError | None) -> None:
            if joined.done():  # cancelled
                return
            if error is None:
                joined.set_result(None)
            else:
                joined.set_exception(error)

        joining = Joining(shared.instance, host, settled)
        joining.begin()
        try:
            await joined
        except BaseException:
            joining.call_off()
            raise

    async def stop(self, drain_s: float, end: Callable[[], Awaitable[None]]) -> None:
        """Drain, store the offsets, leave, `end` what belongs to it, let go of the instance.

        Does nothing when it does not run, or while another task does this. After one that was
        cancelled the next one takes it up, so `end` may be called twice.
        """
        shared, host = self._shared, self._host
        if self.state not in {"running", "stopping"} or shared is None or host is None:
            return
        self._check_here(shared)
        if self._stopping:
            return
        self._stopping = True
        try:
            if self.state == "running":
                self.state = "stopping"
                host.dispatch(StopRequested(drain_s))
            try:
                # The rest takes a few round trips; the bound is for brokers that do not answer.
                async with asyncio.timeout(drain_s + 15.0):
                    await self._ended.wait()
            except TimeoutError:
                _log.warning("group %s: not everything was stored before the stop", self.group)
            await end()
            await self._close(shared)
        finally:
            self._stopping = False

    async def _close(self, shared: LoopInstance) -> None:
        if self._telling is not None and self._telling is not asyncio.current_task():
            await asyncio.wait([self._telling])
        # First: whoever is cancelled in the next line must not release twice.
        self.state, self._shared = "stopped", None
        await shared.release()

    @property
    def instance(self) -> ClientInstance:
        """The instance, while running."""
        return self.shared.instance

    @property
    def shared(self) -> LoopInstance:
        """The instance, while running."""
        if self.state != "running" or self._shared is None:
            raise self.not_running()
        self._check_here(self._shared)
        return self._shared

    def ask(self, question: Callable[[ConsumerHost], _T]) -> _T:
        """Put a question to the host."""
        _ = self.shared  # says so when it is not running, or used from elsewhere
        assert self._host is not None
        return question(self._host)

    def ask_there(self, question: Callable[[], _T], timeout_s: float) -> _T:
        """Put a question on the loop of this member, from any thread."""
        if self.state != "running" or self._shared is None:
            raise self.not_running()
        return self._shared.ask(question, timeout_s)

    def vet(self, question: Flow[None]) -> None:
        """Refuse to ask brokers anything without waiting for them."""
        question.close()
        raise self.refusal(
            ", and subscribe cannot wait here until brokers have read an SQL expression: "
            "await check_sql(topic, sql) first, then subscribe"
        )

    def _check_here(self, shared: LoopInstance) -> None:
        check_loop(shared, f"the consumer of group '{self.group}'")
