"""Pulls of one member: to whom, with what, and what an answer means.

A broker may advise to read a queue from a slave; that is kept until the next answer, and forgotten
when it does not work.
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
from gimbalmq.wire.codes import PullFlag
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_pull_response, pull_request
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["PullCalls", "PullSettings"]

_STATUS: Final = {status.value: status for status in PullStatus}
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUSPEND_AND_COMMIT: Final = int(PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET)


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a push consumer pulls, with Java's names and defaults."""

    #: Push or pull, as brokers and tools see it.
    consume_type: str = "CONSUME_PASSIVELY"
    pull_batch_size: int = 32
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

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer this member's."""
        self._advised.pop(queue, None)

    def pull(self, effect: Pull) -> None:
        """Ask for messages; answered by `PullAnswered` or `PullFailed`."""
        queue, commit_offset = effect.queue, effect.commit_offset
        place = self._instance.pull_place(queue, self._advised.get(queue, MASTER_ID))
        if place is None:
            self._dispatch(PullFailed(queue, effect.epoch, None, f"{queue.broker} has no address"))
            return
        address, is_master = place
        if not is_master:
            commit_offset = 0  # offsets are the master's business
        subscription = self._subscriptions[queue.topic]
        request = pull_request(
            group=self._group,
            queue=queue,
            offset=effect.offset,
            sys_flag=_SUSPEND_AND_COMMIT if commit_offset > 0 else _SUSPEND,
            max_messages=self._settings.pull_batch_size,
            commit_offset=commit_offset,
            suspend_timeout_ms=int(self._settings.broker_suspend_max_time_s * 1000),
            subscription_version_ms=self._instance.registrations.version(
                address, self._group, queue.topic
            ),
        )
        self._instance.driver.call(
            address,
            request,
            self._settings.consumer_timeout_when_suspend_s,
            functools.partial(self._pulled, queue, effect.epoch, subscription),
        )

    def _pulled(
        self,
        queue: MessageQueue,
        epoch: int,
        subscription: SubscriptionData,
        answer: Command | GimbalError,
    ) -> None:
        try:
            event = self._pull_event(queue, epoch, subscription, answer)
        except ProtocolError as error:
            event = PullFailed(queue, epoch, None, f"answer to a pull is unreadable: {error}")
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
