"""The life of a consumer: created, running, stopped; shared by the push and the pull kinds.

Starts a host on the shared instance, joins the group, and leaves it again. What is done with
the messages is the business of the kinds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeVar

from gimbalmq.client.shared import SharedInstance, share
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import Started, StopRequested
from gimbalmq.errors import GimbalError, StateError
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import InstanceSettings

__all__ = ["Membership", "RebalanceCallback"]

_log = logging.getLogger("gimbalmq.consumer")
_T = TypeVar("_T")

RebalanceCallback = Callable[[RebalanceReport], object]
State = Literal["created", "running", "stopping", "stopped", "failed to start"]


class Membership:
    """One member of one group, from `start` to `stop`."""

    def __init__(
        self,
        group: str,
        client_id: str,
        nameservers: tuple[str, ...],
        settings: InstanceSettings,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.state: State = "created"
        self._nameservers = nameservers
        self._settings = settings
        self._callbacks: list[RebalanceCallback] = []
        self._notifier: ThreadPoolExecutor | None = None
        self._shared: SharedInstance | None = None
        self._host: ConsumerHost | None = None
        self._ended = threading.Event()

    def on_rebalance(self, callback: RebalanceCallback) -> None:
        """Call back after each change of this member's queues, on a thread of its own."""
        self._callbacks.append(callback)

    def announce(self, report: RebalanceReport) -> None:
        """Tell the callbacks; called on the engine thread, which must not run user code."""
        if self._callbacks:
            if self._notifier is None:
                self._notifier = ThreadPoolExecutor(1, f"gimbalmq-{self.group}-rebalance")
            for callback in self._callbacks:
                self._notifier.submit(_call_back, callback, report)

    def ended(self) -> None:
        """The machine has nothing left to do."""
        self._ended.set()

    def check_new(self) -> None:
        """Refuse to start twice."""
        if self.state != "created":
            raise StateError(f"consumer of group '{self.group}' is {self.state}: make a new one")

    def start(self, build: Callable[[SharedInstance, int], ConsumerHost]) -> None:
        """Build the host on the instance (at a wall time in ms) and join the group."""
        self.check_new()
        self.state = "failed to start"
        shared = share(self.client_id, self._nameservers, self._settings)
        try:
            now_ms = shared.run(lambda: shared.instance.driver.now().wall_ms)
            host = build(shared, now_ms)
            self._join(shared, host)
        except BaseException:
            shared.release()
            raise
        self._shared, self._host = shared, host
        self.state = "running"

    @staticmethod
    def _join(shared: SharedInstance, host: ConsumerHost) -> None:
        joined: Future[None] = Future()

        def done(error: GimbalError | None) -> None:
            if error is not None:
                joined.set_exception(error)
            else:
                host.dispatch(Started())
                joined.set_result(None)

        shared.post(lambda: shared.instance.join(host, done))
        joined.result()

    def stop(self, drain_s: float) -> bool:
        """Drain, store the offsets and leave; False when it was not running."""
        shared, host = self._shared, self._host
        if self.state != "running" or shared is None or host is None:
            return False
        self.state = "stopping"
        shared.post(lambda: host.dispatch(StopRequested(drain_s)))
        # The rest takes a few round trips; the bound is for brokers that do not answer.
        if not self._ended.wait(drain_s + 15.0):
            _log.warning("group %s: not everything was stored before the stop", self.group)
        return True

    def close(self) -> None:
        """Let go of the instance, after `stop`."""
        if self._notifier is not None:
            self._notifier.shutdown()
        if self._shared is not None:
            self._shared.release()
        self.state = "stopped"

    @property
    def shared(self) -> SharedInstance:
        """The instance, while running."""
        if self.state != "running" or self._shared is None:
            raise StateError(f"consumer of group '{self.group}' is {self.state}, not running")
        return self._shared

    def ask(self, question: Callable[[ConsumerHost], _T]) -> _T:
        """Put a question to the host, on the engine thread."""
        shared, host = self.shared, self._host
        assert host is not None
        return shared.run(lambda: question(host))


def _call_back(callback: RebalanceCallback, report: RebalanceReport) -> None:
    try:
        callback(report)
    except Exception:  # noqa: BLE001 - user code, on a thread of its own
        _log.exception("rebalance callback of group %s failed", report.group)
