"""Offsets: those of groups, and those of queues (ConsumerManageProcessor, AdminBrokerProcessor)."""

from __future__ import annotations

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.store.api import Boundary
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to

__all__ = ["OffsetProcessor"]


class OffsetProcessor:
    """Reads, stores and resets offsets."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._maximum,
            RequestCode.GET_MIN_OFFSET: self._minimum,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _query(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic, queue_id = fields.text(request, "topic"), fields.number(request, "queueId")
        group = fields.text(request, "consumerGroup")
        offset = self._state.offsets.get(topic, group, queue_id)
        if offset is None and fields.flag_or(request, "setZeroIfNotFound", default=True):
            minimum, maximum = self._state.store.bounds(topic, queue_id)
            # A queue that still has everything is young: nothing must be skipped in it.
            if minimum == 0 < maximum:
                offset = 0
        if offset is None:
            raise RefusalError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, maybe this group consumer boot first",
            )
        return response_to(request, fields={"offset": str(offset)})

    def _update(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        group = fields.text_or(request, "consumerGroup")
        if not group or self._state.groups.find(group, now_ms) is None:
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )
        topic = fields.text_or(request, "topic")
        if topic not in self._state.topics:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        queue_id = fields.number_or(request, "queueId", -1)
        offset = fields.number_if_given(request, "commitOffset")
        if queue_id < 0 or offset is None:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER, "QueueId or offset is null, topic is " + topic
            )
        if not self._state.offsets.commit(topic, group, queue_id, offset):
            return response_to(request, remark="Offset has been previously reset")
        return response_to(request)

    def _search(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        upper = fields.text_or(request, "boundaryType").upper() == "UPPER"
        offset = self._state.store.offset_at(
            *_queue(request),
            fields.number(request, "timestamp"),
            Boundary.UPPER if upper else Boundary.LOWER,
        )
        return response_to(request, fields={"offset": str(offset)})

    def _maximum(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        maximum = self._state.store.bounds(*_queue(request))[1]
        return response_to(request, fields={"offset": str(maximum)})

    def _minimum(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        minimum = self._state.store.bounds(*_queue(request))[0]
        return response_to(request, fields={"offset": str(minimum)})

    def _earliest(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        earliest_ms = self._state.store.earliest_time(*_queue(request))
        return response_to(request, fields={"timestamp": str(earliest_ms)})

    def _all(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        return response_to(request, body=self._state.offsets.encoded())

    def _reset(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """Have the group's next pulls start elsewhere; its members need not be there."""
        del channel, now_ms
        group, topic = fields.text(request, "group"), fields.text(request, "topic")
        if self._state.groups.get(group) is None:
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        config = self._state.topics.get(topic)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        chosen = fields.number_or(request, "queueId", -1)
        if chosen >= config.read_queues:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"queue {chosen} of topic {topic} does not exist: it has {config.read_queues}",
            )
        numbers = range(config.read_queues) if chosen < 0 else range(chosen, chosen + 1)
        offsets = {queue_id: self._reset_offset(request, topic, queue_id) for queue_id in numbers}
        for queue_id, offset in offsets.items():
            self._state.offsets.reset(topic, group, queue_id, offset)
        broker = self._state.settings.name
        table = {MessageQueue(topic, broker, number): one for number, one in offsets.items()}
        return response_to(request, body=bodies.encode_reset_offsets(table))

    def _reset_offset(self, request: Command, topic: str, queue_id: int) -> int:
        minimum, maximum = self._state.store.bounds(topic, queue_id)
        given = fields.number_or(request, "offset", -1)
        if fields.number_or(request, "queueId", -1) >= 0 and given >= 0:
            if not minimum <= given <= maximum:
                raise RefusalError(
                    ResponseCode.INVALID_PARAMETER,
                    f"Target offset {given} not in consume queue range [{minimum}-{maximum}]",
                )
            return given
        timestamp_ms = fields.number(request, "timestamp")
        if timestamp_ms < 0:
            return maximum
        offset = self._state.store.offset_at(topic, queue_id, timestamp_ms)
        return max(minimum, min(offset, maximum))

    def _clone(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        source, target = fields.text(request, "srcGroup"), fields.text(request, "destGroup")
        topic = fields.text_or(request, "topic")
        topics = [topic] if topic else self._state.offsets.topics_of(source)
        for one in topics:
            if one in self._state.topics:
                self._state.offsets.clone(source, target, one)
        return response_to(request)


def _queue(request: Command) -> tuple[str, int]:
    return fields.text(request, "topic"), fields.number(request, "queueId")
