"""The life of a consumer: created, running, stopped; shared by the push and the pull kinds.

Starts a host on the shared instance, joins the group, and leaves it again. What is done with
the messages is the business of the kinds.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeVar

import msgspec

from gimbalmq.client.access import Access
from gimbalmq.client.shared import SharedInstance, share
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import StopRequested
from gimbalmq.errors import GimbalError, StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.wire.names import Namespace

__all__ = ["MemberLife", "Membership", "RebalanceCallback", "callback_failed"]

_log = logging.getLogger("gimbalmq.consumer")
_T = TypeVar("_T")

RebalanceCallback = Callable[[RebalanceReport], object]
State = Literal["created", "running", "stopping", "stopped", "failed to start"]


class MemberLife(ABC):
    """What members of every kind have, on threads or on an event loop."""

    def __init__(
        self,
        group: str,
        client_id: str,
        access: Access,
        settings: InstanceSettings,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.state: State = "created"
        self._access = access
        self._settings = settings
        self._callbacks: list[RebalanceCallback] = []
        self._done_callbacks: list[RebalanceCallback] = []
        self._host: ConsumerHost | None = None

    def on_rebalance(self, callback: RebalanceCallback) -> None:
        """Call back after each change of this member's queues."""
        self._callbacks.append(self._named(callback))

    def on_moved(self, callback: RebalanceCallback) -> None:
        """Call back when all queues of a change have come and gone."""
        self._done_callbacks.append(self._named(callback))

    def _named(self, callback: RebalanceCallback) -> RebalanceCallback:
        names = self._access.namespace
        if names.name is None:
            return callback
        return lambda report: callback(_as_user(report, names))

    def check_new(self) -> None:
        """Refuse to start twice."""
        if self.state != "created":
            raise StateError(f"consumer of group '{self.group}' is {self.state}: make a new one")

    def not_running(self) -> StateError:
        """The error for a question to a member that does not run."""
        return StateError(f"consumer of group '{self.group}' is {self.state}, not running")

    @property
    @abstractmethod
    def instance(self) -> ClientInstance:
        """The instance, while running."""

    def announce(self, report: RebalanceReport) -> None:
        """Tell the callbacks of a change; called by the driver, which must not run user code."""
        callbacks = self._done_callbacks if report.done else self._callbacks
        for callback in tuple(callbacks):
            self.notify(callback, report)

    @abstractmethod
    def notify(self, callback: Callable[[_T], object], news: _T) -> None:
        """Tell one of the user's callbacks, away from the driver and in the order of the calls."""

    @abstractmethod
    def ended(self) -> None:
        """The machine has nothing left to do."""

    @abstractmethod
    def ask(self, question: Callable[[ConsumerHost], _T]) -> _T:
        """Put a question to the host, on the driver's side."""

    @abstractmethod
    def vet(self, question: Flow[None]) -> None:
        """Ask brokers whether they agree; raises why not, or logs it where nobody can wait."""


class Membership(MemberLife):
    """One member of one group, from `start` to `stop`, on the engine thread."""

    def __init__(
        self,
        group: str,
        client_id: str,
        access: Access,
        settings: InstanceSettings,
    ) -> None:
        super().__init__(group, client_id, access, settings)
        self._notifier: ThreadPoolExecutor | None = None
        self._shared: SharedInstance | None = None
        self._ended = threading.Event()

    def notify(self, callback: Callable[[_T], object], news: _T) -> None:
        """Tell one of the user's callbacks, on a thread of its own; from the engine thread."""
        if self._notifier is None:
            self._notifier = ThreadPoolExecutor(1, f"gimbalmq-{self.group}-rebalance")
        self._notifier.submit(_call_back, self.group, callback, news)

    def ended(self) -> None:
        """The machine has nothing left to do."""
        self._ended.set()

    def start(self, build: Callable[[SharedInstance, int], ConsumerHost]) -> None:
        """Build the host on the instance (at a wall time in ms) and join the group."""
        self.check_new()
        self.state = "failed to start"
        shared = share(self.client_id, self._access, self._settings)
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
                host.begin(lambda: joined.set_result(None))

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
    def instance(self) -> ClientInstance:
        """The instance, while running."""
        return self.shared.instance

    @property
    def shared(self) -> SharedInstance:
        """The instance, while running."""
        if self.state != "running" or self._shared is None:
            raise self.not_running()
        return self._shared

    def tell(self, action: Callable[[ConsumerHost], None]) -> None:
        """Do something with the host on the engine thread, without waiting for it."""
        shared, host = self.shared, self._host
        assert host is not None
        shared.post(lambda: action(host))

    def ask(self, question: Callable[[ConsumerHost], _T]) -> _T:
        """Put a question to the host, on the engine thread."""
        shared, host = self.shared, self._host
        assert host is not None
        return shared.run(lambda: question(host))

    def vet(self, question: Flow[None]) -> None:
        """Ask brokers whether they agree, on the calling thread; raises why not."""
        self.shared.inline(question)


def _call_back(group: str, callback: Callable[[_T], object], news: _T) -> None:
    try:
        callback(news)
    except Exception:  # noqa: BLE001 - user code, on a thread of its own
        callback_failed(group, news)


def callback_failed(group: str, news: object) -> None:
    """Log that one of the user's callbacks raised."""
    kind = "rebalance" if isinstance(news, RebalanceReport) else type(news).__name__
    _log.exception("%s callback of group %s failed", kind, group)


def _as_user(report: RebalanceReport, names: Namespace) -> RebalanceReport:
    """The report with the names that the user gave."""
    return msgspec.structs.replace(
        report,
        group=names.user(report.group),
        topic=names.user(report.topic),
        acquired=names.user_queues(report.acquired),
        revoked=names.user_queues(report.revoked),
        all_queues=names.user_queues(report.all_queues),
        mine=names.user_queues(report.mine),
        moves=tuple((names.user_queue(queue), why) for queue, why in report.moves),
        done=tuple(
            msgspec.structs.replace(
                move, group=names.user(move.group), queue=names.user_queue(move.queue)
            )
            for move in report.done
        ),
    )
