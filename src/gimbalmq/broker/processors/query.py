"""Messages by id and by key, and messages that consumers hand back."""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError, Send
from gimbalmq.broker.processors.schedule import Schedule, restored, with_property
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.store.api import StoredMessage
from gimbalmq.core.delays import retry_level
from gimbalmq.wire.bodies import GroupConfig
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.names import dlq_topic, retry_topic
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["QueryProcessor"]

_FOUND_MAX: Final = 64
_ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
_DLQ_QUEUES: Final = 1


class QueryProcessor:
    """Finds messages that are stored, and takes them back from consumers."""

    def __init__(self, state: BrokerState, schedule: Schedule) -> None:
        self._state = state
        self._schedule = schedule

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
        }

    def _view(self, request: Command, channel: Channel, now_ms: int) -> None:
        del now_ms
        offset = fields.number(request, "offset")
        record = self._state.store.record_at(offset) if offset >= 0 else None
        if record is None:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        self._state.effects.append(Send(channel, response_to(request), (record,)))

    def _query(self, request: Command, channel: Channel, now_ms: int) -> Command | None:
        limit = fields.number(request, "maxNum")
        begin_ms = fields.number(request, "beginTimestamp")
        end_ms = fields.number(request, "endTimestamp")
        topic, key = fields.text_or(request, "topic"), fields.text_or(request, "key")
        answer = response_to(
            request,
            fields={"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"},
        )
        records: list[memoryview] = []
        if topic and key and limit > 0:
            limit = min(limit, _FOUND_MAX)
            records = self._state.store.find(topic, key, begin_ms, end_ms, limit)
        if not records:
            answer.code = int(ResponseCode.QUERY_NOT_FOUND)
            answer.remark = "can not find message, maybe time range not correct"
            return answer
        answer.fields["indexLastUpdateTimestamp"] = str(now_ms)
        answer.fields["indexLastUpdatePhyoffset"] = str(self._state.store.log_bounds()[1])
        chosen: list[memoryview] = []
        size = 0
        for record in records:
            size += len(record)
            if chosen and size > _ANSWER_BYTES_MAX:
                break
            chosen.append(record)
        self._state.effects.append(Send(channel, answer, tuple(chosen)))
        return None

    def _send_back(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """Store a message again for the group that failed on it, for later or as a dead letter."""
        del channel
        offset, name = fields.number(request, "offset"), fields.text(request, "group")
        level = fields.number(request, "delayLevel")
        group = self._state.groups.require(name, now_ms)
        if group.retry_queues <= 0:
            return response_to(request)
        self._state.topics.ensure(retry_topic(name), group.retry_queues, now_ms)
        failed = self._state.message_at(offset)
        if failed is None:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}"
            )
        limit = fields.retries_max(request, "maxReconsumeTimes")
        if limit is None:
            limit = group.retry_max_times
        given_up = level < 0 or failed.reconsume_times >= limit
        message = self._retried(failed, group, level, now_ms, given_up=given_up)
        self._schedule.store(message, now_ms)
        return response_to(request)

    def _retried(
        self,
        failed: ReceivedMessage,
        group: GroupConfig,
        level: int,
        now_ms: int,
        *,
        given_up: bool,
    ) -> StoredMessage:
        if given_up:
            topic, queue_id, delay = dlq_topic(group.name), 0, 0
            self._state.topics.ensure(topic, _DLQ_QUEUES, now_ms)
        else:
            topic = retry_topic(group.name)
            queue_id = self._state.chance.randrange(group.retry_queues)
            delay = retry_level(failed.reconsume_times, level)
        known = failed.properties
        message = restored(failed)
        if "RETRY_TOPIC" not in known:
            message = with_property(message, "RETRY_TOPIC", failed.record_topic)
        if "ORIGIN_MESSAGE_ID" not in known:
            message = with_property(message, "ORIGIN_MESSAGE_ID", failed.offset_message_id)
        message = with_property(message, "WAIT", "false")
        message = with_property(message, "DELAY", str(delay))
        return msgspec.structs.replace(
            message,
            topic=topic,
            queue_id=queue_id,
            reconsume_times=failed.reconsume_times + 1,
        )
