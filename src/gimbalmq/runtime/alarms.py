"""Alarms for listeners that hang or outlive their lock: seen, named, counted, never killed.

A thread cannot be killed safely, and nobody but the user knows how long is too long; so a listener
that has had its message for `hung_listener_s`, or still has it when its queue may be another
member's, is reported, once, with everything needed to find out why.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.running import RunningWork

__all__ = ["HungListener", "HungListenerAlarm", "ListenerAlarm", "OutlivedLockAlarm"]

_log = logging.getLogger("gimbalmq.consumer")
#: How late a hung listener may be noticed, as a part of the time after which it counts as such.
_LOOKS: int = 4


class HungListener(msgspec.Struct, frozen=True):
    """A listener that has not come back, what it has, and where it is."""

    group: str
    queue: MessageQueue
    #: The first message that the listener has, and how many it got at once.
    queue_offset: int
    message_id: str
    messages: int
    seconds: float
    thread: str
    stack: str


class ListenerAlarm(ABC):
    """Watches the listeners of one consumer and reports each that something is wrong with once."""

    #: The name of its events.
    event: ClassVar[str]

    def __init__(
        self,
        group: str,
        raised: Callable[[HungListener], None],
        coroutine_stack: Callable[[int], str | None],
    ) -> None:
        """`coroutine_stack` says where the coroutine is that a thread waits for, if any."""
        self._group = group
        self._raised = raised
        self._coroutine_stack = coroutine_stack
        #: Which message was reported, by thread; gone when its listener comes back.
        self._reported: dict[int, tuple[RunningWork, int]] = {}
        #: How many were reported since the start.
        self.count = 0

    @property
    @abstractmethod
    def look_every_s(self) -> float:
        """How often to look."""

    @abstractmethod
    def _is_wrong(self, work: RunningWork, now: float) -> bool:
        """Whether to report a listener."""

    @abstractmethod
    def _what_follows(self) -> str:
        """What is wrong about it, in words."""

    def look(self, running: Sequence[RunningWork], now: float) -> None:
        """Report those with which it is wrong since the last look."""
        reported: dict[int, tuple[RunningWork, int]] = {}
        for work in running:
            current = work.current()
            if not current or not self._is_wrong(work, now):
                continue
            known = self._reported.get(work.thread_id)
            same = known is not None and known[0] is work and known[1] == current.start
            reported[work.thread_id] = work, current.start
            if not same:
                self._report(work, current, now - work.had_since(now))
        self._reported = reported

    def _report(self, work: RunningWork, current: range, seconds: float) -> None:
        self.count += 1
        consume = work.consume
        message = consume.batch.messages[current.start]
        found = HungListener(
            group=self._group,
            queue=consume.queue,
            queue_offset=consume.batch.offsets[current.start],
            message_id=message.message_id,
            messages=len(current),
            seconds=seconds,
            thread=_thread_name(work.thread_id),
            stack=self._coroutine_stack(work.thread_id) or _thread_stack(work.thread_id),
        )
        _log.warning(
            "group %s: a listener has had %s offset %d (message %s) for %.0f s on thread %s and "
            "%s; it is here:\n%s",
            found.group,
            found.queue.path,
            found.queue_offset,
            found.message_id,
            found.seconds,
            found.thread,
            self._what_follows(),
            found.stack,
            extra={"gimbalmq": {"event": self.event, **msgspec.to_builtins(found)}},
        )
        self._raised(found)


class HungListenerAlarm(ListenerAlarm):
    """For listeners that have had their message for too long."""

    event = "hung listener"

    def __init__(
        self,
        group: str,
        hung_listener_s: float,
        *,
        raised: Callable[[HungListener], None],
        coroutine_stack: Callable[[int], str | None] = lambda _thread_id: None,
    ) -> None:
        super().__init__(group, raised, coroutine_stack)
        self._hung_listener_s = hung_listener_s

    @property
    def look_every_s(self) -> float:
        """How often to look."""
        return self._hung_listener_s / _LOOKS

    @property
    def hung_now(self) -> int:
        """How many listeners hung at the last look."""
        return len(self._reported)

    def _is_wrong(self, work: RunningWork, now: float) -> bool:
        return now - work.had_since(now) >= self._hung_listener_s

    def _what_follows(self) -> str:
        return "holds up the offset of its queue"


class OutlivedLockAlarm(ListenerAlarm):
    """For listeners that still run when another member may have the queue.

    No message is started without the queue's lock, but one that runs cannot be stopped. When the
    lock is lost meanwhile, another member may start the same message, or those behind it.
    """

    event = "listener outlived its lock"

    def __init__(
        self,
        group: str,
        *,
        look_every_s: float,
        spare_s: float,
        raised: Callable[[HungListener], None] = lambda _found: None,
        coroutine_stack: Callable[[int], str | None] = lambda _thread_id: None,
    ) -> None:
        """`spare_s`: how long after its end nobody can have taken a lock over yet."""
        super().__init__(group, raised, coroutine_stack)
        self._look_every_s = look_every_s
        self._spare_s = spare_s

    @property
    def look_every_s(self) -> float:
        """How often to look."""
        return self._look_every_s

    def _is_wrong(self, work: RunningWork, now: float) -> bool:
        permit = work.consume.permit
        return permit is not None and now >= permit.locked_until + self._spare_s

    def _what_follows(self) -> str:
        return (
            "has outlived the lock of its queue: another member may consume the queue beside it, "
            "this message among the rest"
        )


def _thread_name(thread_id: int) -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return names.get(thread_id, str(thread_id))


def _thread_stack(thread_id: int) -> str:
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the only way there is
    return "".join(traceback.format_stack(frame)) if frame is not None else "(the thread has ended)"
