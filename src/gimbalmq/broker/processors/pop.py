"""Pops: messages handed out for a while, acknowledged one by one (5.x).

A popped message is hidden from the group until it is acknowledged or its time is over; then it
goes to the group's retry topic for pops (or, in order, is handed out again from its queue). The
group's offset never passes a message that is neither: a restart hands those out again and loses
none (PopMessageProcessor keeps check points in a topic for the same end).
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError, Send
from gimbalmq.broker.filters import MessageFilter, filter_of
from gimbalmq.broker.poptable import ORDER_QUEUE, Popped, PopTable
from gimbalmq.broker.state import Arrival, BrokerState, Handler, refused
from gimbalmq.errors import ConfigurationError, GimbalError
from gimbalmq.wire.bodies import GroupConfig, TopicConfig
from gimbalmq.wire.codes import Perm, RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.names import RETRY_PREFIX, pop_retry_topic
from gimbalmq.wire.pop import (
    format_counts,
    format_offsets,
    format_starts,
    retry_digit,
)
from gimbalmq.wire.subscription import SubscriptionData, parse_tags

__all__ = ["PopProcessor"]

_POLL_MS_MAX: Final = 5 * 60 * 1000
_SWEEP_MS: Final = 1_000
#: Which retry topic a pop looks at first: one in five starts with it, as in Java.
_RETRY_TURN: Final = 5


class _Poll(msgspec.Struct, frozen=True, eq=False):
    """A pop or a notification that waits."""

    request: Command
    channel: Channel
    group: str
    topic: str
    queue_id: int
    until_ms: int


class PopProcessor:
    """Hands out, takes back, and hands out again."""

    def __init__(self, state: BrokerState, table: PopTable, now_ms: int) -> None:
        self._state = state
        self._table = table
        self._polls: dict[str, list[_Poll]] = {}
        self._next_sweep_ms = now_ms + _SWEEP_MS
        self._turn = 0

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.PEEK_MESSAGE: self._peek,
            RequestCode.NOTIFICATION: self._notification,
            RequestCode.POLLING_INFO: self._polling_info,
        }

    @property
    def next_due_ms(self) -> int:
        """When waiting pops and hidden messages are looked at again."""
        return min(self._next_sweep_ms, self._table.next_due_ms)

    def arrived(self, arrival: Arrival, now_ms: int) -> None:
        """Run the pops again that wait for this topic."""
        self._wake(arrival.topic, now_ms)

    def tick(self, now_ms: int) -> None:
        """Bring back what was not acknowledged in time; end pops that have waited enough."""
        for topic in self._table.revive(now_ms):
            self._wake(topic, now_ms)
        if now_ms < self._next_sweep_ms:
            return
        self._next_sweep_ms = now_ms + _SWEEP_MS
        for topic, polls in list(self._polls.items()):
            self._polls[topic] = []
            for poll in polls:
                self._again(poll, now_ms)
            if not self._polls[topic]:
                del self._polls[topic]

    def channel_closed(self, channel: Channel) -> None:
        """Drop what a closed connection waits for; what it was handed comes back in time."""
        self._polls = {
            topic: left
            for topic, polls in self._polls.items()
            if (left := [poll for poll in polls if poll.channel is not channel])
        }

    # Pop

    def _pop(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        born_ms = fields.number_or(request, "bornTime") or now_ms
        poll_ms = min(fields.number_or(request, "pollTime"), _POLL_MS_MAX)
        late_ms = now_ms - born_ms - poll_ms
        if late_ms > self._state.settings.pop_clock_tolerance_ms:
            raise RefusalError(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop is {late_ms} ms too late: the clocks of client and broker differ",
                **self._nothing(request, now_ms),
            )
        limit = fields.number_or(request, "maxMsgNums")
        if limit > self._state.settings.pop_messages_max:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"the pop message's num is greater than {self._state.settings.pop_messages_max}",
            )
        topic, group = self._checked(request, now_ms)
        answer = self._hand_out(request, channel, topic, group, now_ms)
        if answer is not None:
            return None
        return self._wait(request, channel, topic.name, born_ms + poll_ms, now_ms)

    def _checked(self, request: Command, now_ms: int) -> tuple[TopicConfig, GroupConfig]:
        name = fields.text(request, "topic")
        group = self._state.groups.require(fields.text(request, "consumerGroup"), now_ms)
        topic = self._state.topics.get(name)
        if topic is None:
            raise RefusalError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        if not topic.perm & Perm.READ:
            raise RefusalError(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
            )
        if not group.consume_enable:
            raise RefusalError(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group.name}"
            )
        queue_id = fields.number_or(request, "queueId")
        if queue_id >= topic.read_queues:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{name}] has {topic.read_queues} queues",
            )
        return topic, group

    def _hand_out(
        self,
        request: Command,
        channel: Channel,
        topic: TopicConfig,
        group: GroupConfig,
        now_ms: int,
    ) -> Command | None:
        """Send what there is; None when there is nothing."""
        limit = fields.number_or(request, "maxMsgNums")
        ordered = fields.flag(request, "order")
        from_end = fields.number_or(request, "initMode") == 1
        hidden_ms = max(0, fields.number_or(request, "invisibleTime"))
        wanted = self._filter(request, topic.name)
        taken: list[Popped] = []
        for name, queue_id in self._places(request, topic, group, ordered=ordered):
            if limit <= 0:
                break
            popped = self._table.pop(
                group.name,
                name,
                queue_id,
                limit=limit,
                hidden_ms=hidden_ms,
                now_ms=now_ms,
                wanted=None if wanted is None or name != topic.name else wanted.wanted,
                ordered=ordered,
                from_end=from_end,
            )
            if popped is not None:
                taken.append(popped)
                limit -= len(popped.offsets)
        if not taken:
            return None
        answer = response_to(request, fields=self._header(taken, now_ms, hidden_ms, ordered))
        rest = sum(
            max(0, self._state.store.bounds(one.topic, one.queue_id)[1] - one.next_offset)
            for one in taken
        )
        answer.fields["restNum"] = str(rest)
        slices = tuple(record for one in taken for record in self._table.shown(one, topic.name))
        self._state.tally.given += sum(len(one.offsets) for one in taken)
        self._state.effects.append(Send(channel, answer, slices))
        return answer

    def _header(
        self,
        taken: list[Popped],
        now_ms: int,
        hidden_ms: int,
        ordered: bool,  # noqa: FBT001 - one of the request's fields
    ) -> dict[str, str]:
        header = {
            "popTime": str(now_ms),
            "invisibleTime": str(hidden_ms),
            "reviveQid": str(ORDER_QUEUE if ordered else 0),
            "startOffsetInfo": format_starts(
                (retry_digit(one.topic), one.queue_id, one.offsets[0]) for one in taken
            ),
            "msgOffsetInfo": format_offsets(
                (retry_digit(one.topic), one.queue_id, one.offsets) for one in taken
            ),
        }
        if ordered:
            header["orderCountInfo"] = format_counts(
                (retry_digit(one.topic), one.queue_id, offset, count)
                for one in taken
                for offset, count in one.counts.items()
            )
        return header

    def _places(
        self, request: Command, topic: TopicConfig, group: GroupConfig, *, ordered: bool
    ) -> list[tuple[str, int]]:
        """The queues to look at: the topic's from a random one on, and the retry topic's."""
        chosen = fields.number_or(request, "queueId")
        if chosen >= 0:
            queues = [(topic.name, chosen)]
        else:
            first = self._state.chance.randrange(max(1, topic.read_queues))
            queues = [
                (topic.name, (first + step) % topic.read_queues)
                for step in range(topic.read_queues)
            ]
        if ordered or topic.name.startswith(RETRY_PREFIX):
            return queues
        retry = pop_retry_topic(topic.name, group.name)
        config = self._state.topics.get(retry)
        retries = [] if config is None else [(retry, one) for one in range(config.read_queues)]
        self._turn += 1
        return retries + queues if self._turn % _RETRY_TURN == 0 else queues + retries

    def _filter(self, request: Command, topic: str) -> MessageFilter | None:
        expression = fields.text_or(request, "exp")
        if not expression:
            return None
        kind = fields.text_or(request, "expType", "TAG")
        try:
            if kind == "TAG":
                return filter_of(parse_tags(topic, expression, 0))
            return filter_of(SubscriptionData(topic, expression, expression_type=kind))
        except ConfigurationError as error:
            raise RefusalError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def _peek(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        topic, group = self._checked(request, now_ms)
        limit = min(
            max(0, fields.number_or(request, "maxMsgNums")), self._state.settings.pop_messages_max
        )
        records: list[memoryview] = []
        for name, queue_id in self._places(request, topic, group, ordered=False):
            if len(records) >= limit:
                break
            start = self._table.position(group.name, name, queue_id, from_end=False)
            found = self._state.store.read(
                name,
                queue_id,
                start,
                max_messages=limit - len(records),
                max_bytes=self._state.settings.pull_bytes_max,
            )
            records += found.records
        header = self._nothing(request, now_ms)
        if not records:
            return response_to(request, ResponseCode.PULL_NOT_FOUND, fields=header)
        self._state.effects.append(
            Send(channel, response_to(request, fields=header), tuple(records))
        )
        return None

    # Waiting

    def _wait(
        self, request: Command, channel: Channel, topic: str, until_ms: int, now_ms: int
    ) -> Command | None:
        group = fields.text(request, "consumerGroup")
        if until_ms <= now_ms:
            return self._over(request, ResponseCode.POLLING_TIMEOUT, now_ms)
        if sum(map(len, self._polls.values())) >= self._state.settings.parked_max:
            return self._over(request, ResponseCode.POLLING_FULL, now_ms)
        queue_id = fields.number_or(request, "queueId")
        poll = _Poll(request, channel, group, topic, queue_id, until_ms)
        self._polls.setdefault(topic, []).append(poll)
        return None

    def _over(self, request: Command, code: ResponseCode, now_ms: int) -> Command:
        if request.code == RequestCode.NOTIFICATION:
            full = "true" if code == ResponseCode.POLLING_FULL else "false"
            return response_to(request, fields={"hasMsg": "false", "pollingFull": full})
        return response_to(request, code, fields=self._nothing(request, now_ms))

    def _nothing(self, request: Command, now_ms: int) -> dict[str, str]:
        return {
            "popTime": str(now_ms),
            "invisibleTime": str(fields.number_or(request, "invisibleTime")),
            "reviveQid": "0",
            "restNum": "0",
        }

    def _wake(self, topic: str, now_ms: int) -> None:
        """Run waiting pops again: those of the topic, and of the topic behind a retry topic."""
        names = [topic] if not topic.startswith(RETRY_PREFIX) else list(self._polls)
        for name in names:
            polls = self._polls.pop(name, None)
            if polls is None:
                continue
            for poll in polls:
                if topic in {poll.topic, pop_retry_topic(poll.topic, poll.group)}:
                    self._again(poll, now_ms)
                else:
                    self._polls.setdefault(name, []).append(poll)

    def _again(self, poll: _Poll, now_ms: int) -> None:
        request = poll.request
        try:
            topic, group = self._checked(request, now_ms)
            if request.code == RequestCode.NOTIFICATION:
                answer = self._has_messages(request, topic, group)
            else:
                answer = self._hand_out(request, poll.channel, topic, group, now_ms)
                if answer is not None:
                    return
        except GimbalError as error:
            # It is this pop's trouble, not that of whoever sent the message that woke it.
            answer = refused(request, error)
        if answer is None:
            if now_ms < poll.until_ms:
                self._polls.setdefault(poll.topic, []).append(poll)
                return
            answer = self._over(request, ResponseCode.POLLING_TIMEOUT, now_ms)
        self._state.effects.append(Send(poll.channel, answer))

    def _notification(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        topic, group = self._checked(request, now_ms)
        answer = self._has_messages(request, topic, group)
        if answer is not None:
            return answer
        born_ms = fields.number_or(request, "bornTime") or now_ms
        until_ms = born_ms + min(fields.number_or(request, "pollTime"), _POLL_MS_MAX)
        return self._wait(request, channel, topic.name, until_ms, now_ms)

    def _has_messages(
        self, request: Command, topic: TopicConfig, group: GroupConfig
    ) -> Command | None:
        for name, queue_id in self._places(request, topic, group, ordered=False):
            position = self._table.position(group.name, name, queue_id, from_end=False)
            if position < self._state.store.bounds(name, queue_id)[1]:
                return response_to(request, fields={"hasMsg": "true", "pollingFull": "false"})
        return None

    def _polling_info(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        topic, group = self._checked(request, now_ms)
        queue_id = fields.number_or(request, "queueId")
        count = sum(
            poll.group == group.name and poll.queue_id == queue_id
            for poll in self._polls.get(topic.name, [])
        )
        return response_to(request, fields={"pollingNum": str(count)})
