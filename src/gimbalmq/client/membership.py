"""The life of a consumer: created, running, stopped; shared by the push and the pull kinds.

Starts a host on the shared instance, joins the group, and leaves it again; a start that somebody
interrupts is undone, and a stop can be taken up again. What is done with the messages is the
business of the kinds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Literal, TypeVar

import msgspec

from gimbalmq.client.access import Access
from gimbalmq.client.shared import SharedInstance, share
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import StopRequested
from gimbalmq.errors import CallTimeoutError, GimbalError, StateError
from gimbalmq.flows.effects import Flow
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.wire.names import Namespace

__all__ = ["Joining", "MemberLife", "Membership", "RebalanceCallback", "State", "callback_failed"]

_log = logging.getLogger("gimbalmq.consumer")
_T = TypeVar("_T")

RebalanceCallback = Callable[[RebalanceReport], object]
State = Literal["created", "starting", "running", "stopping", "stopped", "failed to start"]
#: How long a start waits to have joined. All that it waits for has limits of its own, which are
#: far shorter: nobody is to wait for ever for what a fault has swallowed.
_JOIN_S: Final = 120.0


class Joining:
    """A member on its way into its group, which may be called off; used on the driver's side.

    `settled` hears, once, that it is a member, or why it is none.
    """

    def __init__(
        self,
        instance: ClientInstance,
        host: ConsumerHost,
        settled: Callable[[GimbalError | None], None],
    ) -> None:
        self._instance = instance
        self._host = host
        self._settled = settled
        self._begun = False
        self._called_off = False

    def begin(self) -> None:
        """Set out."""
        self._instance.join(self._host, self._joined)

    def _joined(self, error: GimbalError | None) -> None:
        if error is not None:
            self._settled(error)
        elif self._called_off:
            self._instance.leave(self._host.group, lambda: None)
        else:
            self._begun = True
            self._host.begin(lambda: self._settled(None))

    def call_off(self) -> None:
        """Nobody wants to be a member any more: leave, as soon as it can be left."""
        self._called_off = True
        if self._begun:
            self._host.dispatch(StopRequested(0.0))


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
        #: What `start` raised, if it did.
        self.start_error: BaseException | None = None
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
            raise self.refusal(": make a new one")

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Around a start: it runs afterwards, or keeps what was raised."""
        self.check_new()
        self.state = "starting"
        try:
            yield
        except BaseException as error:
            self.state, self.start_error = "failed to start", error
            raise
        self.state = "running"

    @property
    @abstractmethod
    def _how_to_start(self) -> str:
        """What to do with a consumer that is new."""

    def not_running(self) -> StateError:
        """The error for a question to a member that does not run."""
        new = f": {self._how_to_start}" if self.state == "created" else ""
        return self.refusal(f", not running{new}")

    def refusal(self, consequence: str) -> StateError:
        """An error that says in which state the consumer is, because of what, and what follows."""
        words = f"is {self.state}"
        if self.start_error is not None:
            words = f"failed to start ({type(self.start_error).__name__}: {self.start_error})"
        error = StateError(f"consumer of group '{self.group}' {words}{consequence}")
        error.__cause__ = self.start_error
        return error

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
        """Ask brokers whether they agree; raises why not, also when the caller cannot wait."""


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
        self._stopping = threading.Lock()
        #: Where it was started: neither its threads nor its lock are there after a fork.
        self._pid = os.getpid()

    @property
    def _how_to_start(self) -> str:
        return "use it in a with statement, or call start() first"

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
        with self.starting():
            self._pid = os.getpid()
            shared = share(self.client_id, self._access, self._settings)
            try:
                now_ms = shared.run(lambda: shared.instance.driver.now().wall_ms)
                host = build(shared, now_ms)
                self._join(shared, host)
            except BaseException:
                shared.release()
                raise
            self._shared, self._host = shared, host

    def _join(self, shared: SharedInstance, host: ConsumerHost) -> None:
        joined: Future[None] = Future()

        def settled(error: GimbalError | None) -> None:
            if error is None:
                joined.set_result(None)
            else:
                joined.set_exception(error)

        joining = Joining(shared.instance, host, settled)
        shared.post(joining.begin)
        try:
            joined.result(_JOIN_S)
        except BaseException as error:
            with contextlib.suppress(StateError):
                shared.post(joining.call_off)
            if isinstance(error, TimeoutError):
                raise CallTimeoutError(
                    f"group '{self.group}' was not joined within {_JOIN_S:g} s: the log says what "
                    "its client waited for; try again with a new consumer"
                ) from error
            raise

    def stop(self, drain_s: float, end: Callable[[], None]) -> None:
        """Drain, store the offsets, leave, `end` what belongs to it, let go of the instance.

        Does nothing when it does not run, while another thread does this, or in a forked child.
        After one that was interrupted the next one takes it up, so `end` may be called twice.
        """
        shared, host = self._shared, self._host
        if self.state not in {"running", "stopping"} or shared is None or host is None:
            return
        if self._pid != os.getpid():
            return
        if not self._stopping.acquire(blocking=False):
            return
        try:
            if self.state == "running":
                shared.post(lambda: host.dispatch(StopRequested(drain_s)))
                self.state = "stopping"
            # The rest takes a few round trips; the bound is for brokers that do not answer.
            if not self._ended.wait(drain_s + 15.0):
                _log.warning("group %s: not everything was stored before the stop", self.group)
            end()
            self._close(shared)
        finally:
            self._stopping.release()

    def _close(self, shared: SharedInstance) -> None:
        if self._notifier is not None:
            self._notifier.shutdown()
        # First: whoever is interrupted in the next line must not release twice.
        self.state, self._shared = "stopped", None
        shared.release()

    @property
    def instance(self) -> ClientInstance:
        """The instance, while running."""
        return self.shared.instance

    @property
    def shared(self) -> SharedInstance:
        """The instance, while running."""
        if self.state != "running" or self._shared is None:
            raise self.not_running()
        if self._pid != os.getpid():
            raise StateError(
                f"the consumer of group '{self.group}' was started in process {self._pid}: make "
                "one in each process"
            )
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
    except BaseException:  # noqa: BLE001 - user code, whose thread would end without a word
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
