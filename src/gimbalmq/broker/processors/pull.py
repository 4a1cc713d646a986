"""Pulls: from an offset on, what the subscription wants; held when there is nothing yet.

The order of the checks is Java's (PullMessageProcessor). A held pull is run again when a message
that it wants arrives, and by a sweep that does not look at the filter, so that its reader gets
past messages that it does not want.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError, Send
from gimbalmq.broker.filters import MessageFilter, filter_of
from gimbalmq.broker.longpoll import ParkedPull, ParkedTable
from gimbalmq.broker.state import Arrival, BrokerState, Handler, refused
from gimbalmq.broker.store.api import ReadResult, ReadStatus
from gimbalmq.errors import ConfigurationError, GimbalError
from gimbalmq.wire.bodies import GroupConfig, TopicConfig
from gimbalmq.wire.codes import Perm, PullFlag, RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.subscription import SQL92, TAG, SubscriptionData, parse_tags

__all__ = ["PullProcessor"]

_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
#: No client waits longer for an answer.
_SUSPEND_MS_MAX: Final = 10 * 60 * 1000

_CODES: Final = {
    ReadStatus.FOUND: int(ResponseCode.SUCCESS),
    ReadStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    ReadStatus.OFFSET_OVERFLOW_ONE: int(ResponseCode.PULL_NOT_FOUND),
    ReadStatus.OFFSET_OVERFLOW_BADLY: int(ResponseCode.PULL_OFFSET_MOVED),
    ReadStatus.OFFSET_TOO_SMALL: int(ResponseCode.PULL_OFFSET_MOVED),
}
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)


class _Pull(msgspec.Struct, frozen=True):
    group: str
    topic: str
    queue_id: int
    offset: int
    count: int
    sys_flag: int


class PullProcessor:
    """Answers pulls and holds those that found nothing."""

    def __init__(self, state: BrokerState, now_ms: int) -> None:
        self._state = state
        self._parked: ParkedTable[ParkedPull] = ParkedTable(state.settings.parked_max)
        self._next_sweep_ms = now_ms + state.settings.long_poll_sweep_ms

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.PULL_MESSAGE: self._first,
            RequestCode.LITE_PULL_MESSAGE: self._first,
        }

    @property
    def next_due_ms(self) -> int:
        """When held pulls are looked at again."""
        return self._next_sweep_ms

    @property
    def parked(self) -> int:
        """How many pulls are held."""
        return len(self._parked)

    def arrived(self, arrival: Arrival, now_ms: int) -> None:
        """Run the pulls again that want what has just been stored."""
        for parked in self._parked.take_wanted(arrival):
            self._again(parked, now_ms)

    def tick(self, now_ms: int) -> None:
        """Run the pulls again that have waited long enough, or have something to read."""
        if now_ms < self._next_sweep_ms:
            return
        self._next_sweep_ms = now_ms + self._state.settings.long_poll_sweep_ms
        bounds = {key: self._state.store.bounds(*key)[1] for key in self._parked.queues()}
        for parked in self._parked.take_due(now_ms, bounds):
            self._again(parked, now_ms)

    def channel_closed(self, channel: Channel) -> None:
        """Drop what a closed connection waits for."""
        self._parked.drop(channel)

    def _first(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        return self._run(request, channel, now_ms, again=False)

    def _again(self, parked: ParkedPull, now_ms: int) -> None:
        request = parked.request
        try:
            answer = self._run(request, parked.channel, now_ms, again=True)
        except GimbalError as error:
            # It is this pull's trouble, not that of whoever sent the message that woke it.
            answer = refused(request, error)
        if answer is not None:
            self._state.effects.append(Send(parked.channel, answer))

    def _run(
        self, request: Command, channel: Channel, now_ms: int, *, again: bool
    ) -> Command | None:
        pull = _read(request)
        state = self._state
        group = state.groups.require(pull.group, now_ms)
        topic = self._checked_topic(pull, group)
        wanted = self._filter(pull, request, group)
        if pull.sys_flag & _COMMIT and not again:
            commit = fields.number_or(request, "commitOffset")
            state.offsets.commit(pull.topic, pull.group, pull.queue_id, commit)
        reset = state.offsets.take_reset(pull.topic, pull.group, pull.queue_id)
        if reset is not None:
            minimum, maximum = state.store.bounds(pull.topic, pull.queue_id)
            answer = _answer(request, _MOVED, "OFFSET_RESET", reset, minimum, maximum)
            return _with_flags(answer, topic, group)
        result = state.store.read(
            pull.topic,
            pull.queue_id,
            pull.offset,
            max_messages=max(1, min(pull.count, state.settings.pull_messages_max)),
            max_bytes=state.settings.pull_bytes_max,
            wanted=None if wanted is None else wanted.wanted,
            scan_max=state.settings.pull_scan_max,
        )
        code = _code_of(result, pull.offset)
        if code == _NOT_FOUND and not again and pull.sys_flag & _SUSPEND:
            wait_ms = min(fields.number_or(request, "suspendTimeoutMillis"), _SUSPEND_MS_MAX)
            parked = ParkedPull(request, channel, pull.offset, now_ms + wait_ms, wanted)
            if wait_ms > 0 and self._parked.park(pull.topic, pull.queue_id, parked):
                return None
        state.offsets.note_pull(pull.topic, pull.group, pull.queue_id, pull.offset)
        answer = _answer(
            request,
            code,
            result.status.name,
            result.next_offset,
            result.minimum,
            result.maximum,
        )
        _with_flags(answer, topic, group)
        if code:
            return answer
        state.tally.given += len(result.records)
        state.tally.given_bytes += result.size
        state.effects.append(Send(channel, answer, tuple(result.records)))
        return None

    def _checked_topic(self, pull: _Pull, group: GroupConfig) -> TopicConfig:
        if not group.consume_enable:
            raise RefusalError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {pull.group}",
                forbiddenType="2",
            )
        topic = self._state.topics.get(pull.topic)
        if topic is None:
            raise RefusalError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{pull.topic}] not exist, apply first please!",
            )
        if not topic.perm & Perm.READ:
            raise RefusalError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{pull.topic}] pulling message is forbidden",
                forbiddenType="3",
            )
        if not 0 <= pull.queue_id < topic.read_queues:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}]",
            )
        return topic

    def _filter(self, pull: _Pull, request: Command, group: GroupConfig) -> MessageFilter | None:
        if pull.sys_flag & _SUBSCRIPTION:
            return self._given_filter(pull, request)
        members = self._state.consumers.group(pull.group)
        if members is None:
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: {pull.group} has no member that sent a "
                "heartbeat",
            )
        if members.is_broadcasting and not group.consume_broadcast_enable:
            raise RefusalError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{pull.group}] can not consume by broadcast way",
                forbiddenType="4",
            )
        known = members.subscriptions.get(pull.topic)
        if known is None:
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {pull.group}, topic {pull.topic}",
            )
        if known.version_ms < fields.number_or(request, "subVersion"):
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        try:
            return filter_of(known)
        except ConfigurationError as error:
            raise RefusalError(ResponseCode.FILTER_DATA_NOT_EXIST, str(error)) from error

    def _given_filter(self, pull: _Pull, request: Command) -> MessageFilter | None:
        """The filter that the pull itself brings; what cannot be read is refused."""
        kind = fields.text_or(request, "expressionType", TAG)
        expression = fields.text_or(request, "subscription")
        if not self._state.settings.property_filter and kind == SQL92:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        try:
            subscription = (
                parse_tags(pull.topic, expression, 0)
                if kind == TAG
                else (SubscriptionData(pull.topic, expression, expression_type=kind))
            )
            return filter_of(subscription)
        except ConfigurationError as error:
            if self._state.settings.faithful and kind != TAG:
                return None  # Java gives everything here
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from error


def _read(request: Command) -> _Pull:
    return _Pull(
        fields.text(request, "consumerGroup"),
        fields.text(request, "topic"),
        fields.number(request, "queueId"),
        fields.number(request, "queueOffset"),
        fields.number(request, "maxMsgNums"),
        fields.number(request, "sysFlag"),
    )


def _code_of(result: ReadResult, offset: int) -> int:
    if result.status is ReadStatus.NO_MESSAGE_IN_QUEUE:
        return _MOVED if offset else _NOT_FOUND
    return _CODES[result.status]


def _answer(
    request: Command, code: int, remark: str, next_offset: int, minimum: int, maximum: int
) -> Command:
    return response_to(
        request,
        code,
        remark,
        {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(minimum),
            "maxOffset": str(maximum),
        },
    )


def _with_flags(answer: Command, topic: TopicConfig, group: GroupConfig) -> Command:
    answer.fields["topicSysFlag"] = str(topic.sys_flag)
    answer.fields["groupSysFlag"] = str(group.sys_flag)
    return answer
