"""Pulls of one member: to whom, with what, and what an answer means.

A broker may advise to read a queue from a slave; that is kept until the next answer, and forgotten
when it does not work. What will be asked for next may go out early: see `read_ahead`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gimbalmq.core.consumer.effects import Pull
from gimbalmq.core.consumer.events import Event, PullAnswered, PullFailed
from gimbalmq.errors import GimbalError, ProtocolError
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import MASTER_ID
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.read_ahead import Budget, EarlyPull, ReadAhead
from gimbalmq.wire.codes import PullFlag
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_pull_response, pull_request
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["PullCalls", "PullSettings"]

_STATUS: Final = {status.value: status for status in PullStatus}
_SUSPEND: Final = int(PullFlag.SUSPEND)
_COMMIT_OFFSET: Final = int(PullFlag.COMMIT_OFFSET)
_FOUND: Final = PullStatus.FOUND.value
_MOVED: Final = PullStatus.OFFSET_ILLEGAL.value


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a push consumer pulls, with Java's names and defaults."""

    #: Push or pull, as brokers and tools see it.
    consume_type: str = "CONSUME_PASSIVELY"
    pull_batch_size: int = 32
    #: How many pulls of a member may go out before they are asked for.
    pulls_ahead: int = 32
    broker_suspend_max_time_s: float = 15.0
    consumer_timeout_when_suspend_s: float = 30.0
    max_reconsume_times: int = 16
    #: What messages leave out of the names that they show.
    namespace: str | None = None


class PullCalls:
    """Sends the pulls of one group's member and reads their answers."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        settings: PullSettings,
        dispatch: Callable[[Event], None],
    ) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions = subscriptions
        self._settings = settings
        self._dispatch = dispatch
        #: Broker id other than the master's that a broker advised to read a queue from.
        self._advised: dict[MessageQueue, int] = {}
        self._ahead: dict[MessageQueue, ReadAhead] = {}
        self._budget = Budget(settings.pulls_ahead)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer this member's."""
        self._advised.pop(queue, None)
        ahead = self._ahead.pop(queue, None)
        if ahead is not None:
            ahead.drop()
            self._budget.share(max(len(self._ahead), 1))

    def pull(self, effect: Pull) -> None:
        """Ask for messages; answered by `PullAnswered` or `PullFailed`."""
        queue = effect.queue
        ahead = self._ahead_of(effect)
        if ahead.moved is not None:
            moved, ahead.moved = ahead.moved, None
            ahead.drop()
            self._pulled(effect, ahead, moved)
            return
        early = ahead.take(effect)
        place = self._instance.pull_place(queue, self._advised.get(queue, MASTER_ID))
        if early is None:
            if place is None:
                reason = f"{queue.broker} has no address"
                self._dispatch(PullFailed(queue, effect.epoch, None, reason))
                return
            self._ask(effect, ahead, place)
        commit_offset = effect.commit_offset if early is not None else 0
        while place is not None and (further := ahead.further(effect)) is not None:
            self._ask_early(effect, ahead, place, further, commit_offset)
            commit_offset = 0
        if early is not None and early.answer is not None:
            self._hand_over(effect, ahead, early.answer)

    def _ahead_of(self, effect: Pull) -> ReadAhead:
        ahead, subscription = self._ahead.get(effect.queue), self._subscriptions[effect.queue.topic]
        if ahead is None or ahead.epoch != effect.epoch or ahead.subscription is not subscription:
            if ahead is not None:
                ahead.drop()
            ahead = self._ahead[effect.queue] = ReadAhead(effect.epoch, subscription, self._budget)
            self._budget.share(len(self._ahead))
        return ahead

    def _ask(self, effect: Pull, ahead: ReadAhead, place: tuple[str, bool]) -> None:
        """Send a pull that waits at the broker while there is nothing."""
        self._send(
            effect.queue,
            effect.offset,
            effect.commit_offset,
            place,
            functools.partial(self._pulled, effect, ahead),
            suspend=True,
        )

    def _ask_early(
        self,
        effect: Pull,
        ahead: ReadAhead,
        place: tuple[str, bool],
        early: EarlyPull,
        commit_offset: int,
    ) -> None:
        def came(answer: Command | GimbalError) -> None:
            if isinstance(answer, Command) and answer.code == _MOVED:
                ahead.moved = answer
            wanted = ahead.came(early, answer)
            if wanted is not None:
                self._hand_over(wanted, ahead, answer)

        self._send(effect.queue, early.offset, commit_offset, place, came, suspend=False)

    def _hand_over(self, effect: Pull, ahead: ReadAhead, answer: Command | GimbalError) -> None:
        """What was asked for early is wanted now."""
        if isinstance(answer, Command) and answer.code == _FOUND:
            self._pulled(effect, ahead, answer)
        elif effect.queue.topic in self._subscriptions:  # else the queue is on its way out
            # Whatever is wrong, a pull of now shows whether it still is.
            self.pull(effect)

    def _send(
        self,
        queue: MessageQueue,
        offset: int,
        commit_offset: int,
        place: tuple[str, bool],
        done: Callable[[Command | GimbalError], None],
        *,
        suspend: bool,
    ) -> None:
        address, is_master = place
        if not is_master:
            commit_offset = 0  # offsets are the master's business
        flags = _SUSPEND if suspend else 0
        request = pull_request(
            group=self._group,
            queue=queue,
            offset=offset,
            sys_flag=flags | _COMMIT_OFFSET if commit_offset > 0 else flags,
            max_messages=self._settings.pull_batch_size,
            commit_offset=commit_offset,
            suspend_timeout_ms=int(self._settings.broker_suspend_max_time_s * 1000),
            subscription_version_ms=self._instance.registrations.version(
                address, self._group, queue.topic
            ),
        )
        timeout_s = self._settings.consumer_timeout_when_suspend_s
        self._instance.driver.call(address, request, timeout_s, done)

    def _pulled(self, effect: Pull, ahead: ReadAhead, answer: Command | GimbalError) -> None:
        queue, epoch = effect.queue, effect.epoch
        event: PullAnswered | PullFailed
        try:
            event = self._pull_event(queue, epoch, ahead.subscription, answer)
        except ProtocolError as error:
            event = PullFailed(queue, epoch, None, f"answer to a pull is unreadable: {error}")
        if isinstance(event, PullAnswered) and event.maximum is not None:
            ahead.learn(effect.offset, event.next_offset, event.maximum)
        self._dispatch(event)

    def _pull_event(
        self,
        queue: MessageQueue,
        epoch: int,
        subscription: SubscriptionData,
        answer: Command | GimbalError,
    ) -> PullAnswered | PullFailed:
        if isinstance(answer, GimbalError):
            self._advised.pop(queue, None)  # a slave that is gone; the master knows better
            return PullFailed(queue, epoch, None, str(answer))
        status = _STATUS.get(answer.code)
        if status is None:
            self._advised.pop(queue, None)
            return PullFailed(
                queue, epoch, answer.code, f"pull refused with code {answer.code}: {answer.remark}"
            )
        header = parse_pull_response(answer)
        if header.suggested_broker_id != self._advised.get(queue, MASTER_ID):
            self._advised[queue] = header.suggested_broker_id
        if status is not PullStatus.FOUND:
            return PullAnswered(queue, epoch, status, header.next_offset, maximum=header.maximum)
        messages = decode_records(answer.body, queue.broker)
        if self._settings.namespace is not None:
            for message in messages:
                message.namespace = self._settings.namespace
        if subscription.tags:
            # The broker compares hashes of tags; two tags may share one.
            messages = [message for message in messages if subscription.matches(message.tags)]
        offsets = [message.queue_offset for message in messages]
        size = len(answer.body)
        return PullAnswered(
            queue, epoch, status, header.next_offset, messages, offsets, size, header.maximum
        )
