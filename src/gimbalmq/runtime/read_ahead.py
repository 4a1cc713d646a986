"""Pulls that go out before they are asked for, while a queue has much to read.

A broker gives at most 32 messages per pull, so a member that asks for the next ones only when it
has the last is limited by the way there and back, and so is the broker, which does more in less
time when requests come many at once. While the answers for a queue advance by the same step, the
offsets of the next ones are known; asking for them early is a guess about the offset only: what
is wanted next is decided by the machine, and an answer that does not fit is dropped. Answers that
follow each other are handed over together, as far as flow control has room for them: then what
would be done for each of them is done once.

Decides what to ask for early and which answer fits. Sends nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from gimbalmq.core.consumer.effects import Pull
from gimbalmq.errors import GimbalError
from gimbalmq.model.message import PullStatus
from gimbalmq.wire.command import Command
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["Budget", "EarlyPull", "ReadAhead"]

_FOUND: Final = PullStatus.FOUND.value


class Budget:
    """How many early pulls of a member may be on their way or wait to be asked for, in all.

    Its queues have equal parts of it, rounded up, so that none waits for the others, and those
    that have nothing to read, as that of a retry topic, take next to nothing away.
    """

    __slots__ = ("_most", "left", "part")

    def __init__(self, most: int) -> None:
        self._most = most
        self.left = self.part = most

    def share(self, queues: int) -> None:
        """Divide it anew among so many queues."""
        self.part = -(-self._most // queues)


class EarlyPull(msgspec.Struct, eq=False):
    """One pull that went out early."""

    offset: int
    #: What the broker said; None while it is on its way.
    answer: Command | GimbalError | None = None
    #: The pull that waits for it.
    wanted: Pull | None = None


class ReadAhead:
    """The early pulls of one acquisition of a queue, for one subscription."""

    __slots__ = (
        "_budget",
        "_maximum",
        "_pulls",
        "_steady",
        "_step",
        "epoch",
        "moved",
        "subscription",
    )

    def __init__(self, epoch: int, subscription: SubscriptionData, budget: Budget) -> None:
        self.epoch = epoch
        self.subscription = subscription
        self._budget = budget
        #: By offset, each a step behind the one before.
        self._pulls: deque[EarlyPull] = deque()
        self._step = 0
        self._steady = False
        self._maximum = 0
        #: An answer that sends the group elsewhere. A broker on which an operator has set offsets
        #: says so once, to whichever pull comes next.
        self.moved: Command | None = None

    def fits(self, pull: Pull, subscription: SubscriptionData) -> bool:
        """Whether a pull is of the same acquisition and subscription."""
        return self.epoch == pull.epoch and self.subscription is subscription

    def learn(self, asked: int, next_offset: int, maximum: int) -> None:
        """A pull at `asked` brought messages, and goes on at `next_offset`."""
        step = next_offset - asked
        self._steady = step == self._step > 0
        self._step = step
        self._maximum = max(self._maximum, maximum)

    def take(self, pull: Pull) -> EarlyPull | None:
        """The early pull that is the one now wanted; without one, all others are useless.

        It stays in its place while it has no answer.
        """
        if not self._pulls or self._pulls[0].offset != pull.offset:
            self.drop()
            return None
        early = self._pulls[0]
        early.wanted = pull
        if early.answer is not None:
            self.take_first()
        return early

    def take_wanted(self) -> EarlyPull | None:
        """The early pull that was waited for, if it has its answer now."""
        first = self._pulls[0] if self._pulls else None
        if first is None or first.wanted is None or first.answer is None:
            return None
        self.take_first()
        return first

    def answer_at(self, offset: int) -> Command | None:
        """What the broker said to the early pull at an offset, if that is the first and found."""
        first = self._pulls[0] if self._pulls else None
        if first is None or first.offset != offset:
            return None
        answer = first.answer
        return answer if isinstance(answer, Command) and answer.code == _FOUND else None

    def take_first(self) -> None:
        """Take the first early pull out: it is done with."""
        self._pulls.popleft()
        self._budget.left += 1

    def drop(self) -> None:
        """Forget what was asked for early: whatever comes of it fits nothing any more."""
        for early in self._pulls:
            early.wanted = None
        self._budget.left += len(self._pulls)
        self._pulls.clear()

    def further(self, pull: Pull) -> list[EarlyPull]:
        """More pulls to send early, behind `pull` and those before."""
        more: list[EarlyPull] = []
        if not self._steady:
            return more
        budget, pulls, step = self._budget, self._pulls, self._step
        offset = (pulls[-1].offset if pulls else pull.offset) + step
        # Only what is sure to be full: an early pull must never wait for messages.
        last = self._maximum - step
        while offset <= last and budget.left > 0 and len(pulls) < budget.part:
            early = EarlyPull(offset)
            pulls.append(early)
            more.append(early)
            budget.left -= 1
            offset += step
        return more
