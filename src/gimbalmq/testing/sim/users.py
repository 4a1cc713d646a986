"""Users who read by themselves, in virtual time: one polls, one pulls and keeps the offsets.

Decides when they read and how long they take. What they read with is real: the queue of polls, and
the flows behind the classic consumer's methods.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.consumer.events import Consumed
from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow, sleep
from gimbalmq.flows.offset import store_offset, stored_offset
from gimbalmq.flows.pull import pull
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.polling import PollQueue
from gimbalmq.testing.sim.clients import SimMember
from gimbalmq.testing.sim.executor import ListenerHabits
from gimbalmq.testing.sim.history import Kind
from gimbalmq.wire.received import ReceivedMessage
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["PollingUser", "PullingUser"]

#: Until the next look, after one that found nothing or failed.
_PAUSE_S: Final = 0.5
#: Fewer than a pull brings, so that one takes several polls.
_POLL_MESSAGES: Final = 5


class _User:
    """Somebody who takes a while for each message."""

    def __init__(self, member: SimMember, habits: ListenerHabits) -> None:
        self._member = member
        self._process = member.process
        self._chance = member.process.world.stream(f"user of {member.process.name}")
        self._habits = habits

    def _takes_s(self) -> float:
        return self._habits.takes_s(self._chance, self._process.world.now)

    def _note(self, kind: Kind, message: ReceivedMessage) -> None:
        self._process.world.note(
            kind,
            self._process.name,
            queue=message.queue.path,
            offset=message.queue_offset,
            text=bytes(message.body).decode(),
        )


class PollingUser(_User):
    """Polls, works on what came, and polls again; what was polled before then counts as done."""

    def __init__(self, member: SimMember, habits: ListenerHabits) -> None:
        super().__init__(member, habits)
        self.polls = PollQueue(self._finished, _POLL_MESSAGES)
        member.before_leaving = self.polls.settle
        self._process.soon(self._poll)

    def _finished(self, done: Consumed) -> None:
        self._process.soon(lambda: self._member.host.finished(done))

    def _poll(self) -> None:
        if self._member.leaving:
            return
        self.polls.settle()
        # Without waiting, since only virtual time passes here.
        messages = self.polls.poll(0.0)
        for message in messages:
            self._note(Kind.STARTED, message)
        takes_s = sum(self._takes_s() for _ in messages) or _PAUSE_S
        self._process.later(takes_s, lambda: self._worked(messages))

    def _worked(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self._note(Kind.ENDED, message)
        self._poll()


class PullingUser(_User):
    """Reads each queue of its share from the stored offset on, and stores how far it came."""

    def __init__(
        self, member: SimMember, habits: ListenerHabits, subscription: SubscriptionData
    ) -> None:
        super().__init__(member, habits)
        self._subscription = subscription
        self._reading: set[MessageQueue] = set()
        member.on_rebalance = self._rebalanced

    def _rebalanced(self, report: RebalanceReport) -> None:
        for queue in report.acquired:
            if queue not in self._reading:
                self._reading.add(queue)
                self._member.driver.spawn(self._read(queue), lambda _result: None)

    def _read(self, queue: MessageQueue) -> Flow[None]:
        while queue in self._member.assignment():
            try:
                found = yield from self._read_on(queue)
            except GimbalError:
                found = 0
            if not found:
                yield from sleep(_PAUSE_S)
        self._reading.discard(queue)

    def _read_on(self, queue: MessageQueue) -> Flow[int]:
        group, master = self._member.host.group, self._member.instance.routes.master(queue)
        if master is None:
            return 0
        offset = (yield from stored_offset(master, group, queue)) or 0
        result = yield from pull(master, group, queue, offset, subscription=self._subscription)
        for message in result.messages:
            self._note(Kind.STARTED, message)
            yield from sleep(self._takes_s())
            self._note(Kind.ENDED, message)
        if result.next_offset > offset:
            yield from store_offset(master, group, queue, result.next_offset)
        return len(result.messages)
