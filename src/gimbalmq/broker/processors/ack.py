"""What becomes of popped messages: acknowledged, or hidden for another while (5.x)."""

from __future__ import annotations

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.poptable import PopTable
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.names import RETRY_PREFIX, pop_retry_topic
from gimbalmq.wire.pop import PopHandle

__all__ = ["AckProcessor"]


class AckProcessor:
    """Takes acknowledgements."""

    def __init__(self, state: BrokerState, table: PopTable) -> None:
        self._state = state
        self._table = table

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    def _ack(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        self._check_place(request, ResponseCode.MESSAGE_ILLEGAL)
        handle = PopHandle.parse(fields.text(request, "extraInfo"))
        self._table.ack(
            fields.text(request, "consumerGroup"),
            fields.text(request, "topic"),
            fields.number(request, "queueId"),
            [fields.number(request, "offset")],
            handle.pop_time,
            now_ms,
        )
        return response_to(request)

    def _check_place(self, request: Command, wrong_queue: ResponseCode) -> None:
        topic, queue_id = fields.text(request, "topic"), fields.number(request, "queueId")
        config = self._state.topics.get(topic)
        if config is None:
            raise RefusalError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not 0 <= queue_id < config.read_queues:
            raise RefusalError(
                wrong_queue,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] has {config.read_queues} queues",
            )
        minimum, maximum = self._state.store.bounds(topic, queue_id)
        offset = fields.number(request, "offset")
        if not minimum <= offset < maximum:
            raise RefusalError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, "
                f"store:{minimum}~{maximum}",
            )

    def _ack_batch(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        for ack in bodies.decode_batch_ack(request.body)[1]:
            topic = ack.topic
            if ack.retry != "0" and not topic.startswith(RETRY_PREFIX):
                topic = pop_retry_topic(topic, ack.group, second_form=ack.retry == "2")
            self._table.ack(ack.group, topic, ack.queue_id, list(ack.offsets), ack.pop_time, now_ms)
        return response_to(request)

    def _change(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """Hide a message for longer, or have it come back sooner."""
        del channel
        self._check_place(request, ResponseCode.MESSAGE_ILLEGAL)
        handle = PopHandle.parse(fields.text(request, "extraInfo"))
        hidden_ms = max(0, fields.number(request, "invisibleTime"))
        self._table.hide(
            fields.text(request, "consumerGroup"),
            fields.text(request, "topic"),
            fields.number(request, "queueId"),
            fields.number(request, "offset"),
            handle.pop_time,
            now_ms,
            hidden_ms,
        )
        return response_to(
            request,
            fields={
                "popTime": str(now_ms),
                "invisibleTime": str(hidden_ms),
                "reviveQid": str(handle.revive_queue_id),
            },
        )
