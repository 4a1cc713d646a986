"""How things stand: progress of groups, contents of topics, figures of the broker itself."""

from __future__ import annotations

from typing import Final

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.filters import tag_hash
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.bodies.shape import write_document
from gimbalmq.wire.codes import CLIENT_VERSION, RequestCode, ResponseCode, version_name
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.names import RETRY_PREFIX
from gimbalmq.wire.properties import encode_properties

__all__ = ["StatsProcessor"]

_ENTRIES_MAX: Final = 1_000


class StatsProcessor:
    """Answers what tools ask to show."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        code = RequestCode
        return {
            code.GET_TOPIC_STATS_INFO: self._topic_stats,
            code.GET_CONSUME_STATS: self._consume_stats,
            code.GET_BROKER_CONSUME_STATS: self._broker_consume_stats,
            code.QUERY_TOPIC_CONSUME_BY_WHO: self._who_consumes,
            code.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            code.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            code.QUERY_CONSUME_TIME_SPAN: self._time_span,
            code.QUERY_CORRECTION_OFFSET: self._correction_offsets,
            code.QUERY_CONSUME_QUEUE: self._consume_queue,
            code.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            code.VIEW_BROKER_STATS_DATA: self._stats_data,
        }

    def _topic_stats(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic = fields.text(request, "topic")
        config = self._state.topics.get(topic)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        broker = self._state.settings.name
        table = {}
        for queue_id in range(max(config.write_queues, config.read_queues)):
            minimum, maximum = self._state.store.bounds(topic, queue_id)
            queue = MessageQueue(topic, broker, queue_id)
            last_ms = self._stored_ms(topic, queue_id, maximum - 1)
            table[queue] = bodies.QueueRange(minimum, maximum, max(0, last_ms))
        return response_to(request, body=bodies.encode_topic_stats(bodies.TopicStats(table)))

    def _consume_stats(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        group = fields.text(request, "consumerGroup")
        chosen = [name for name in fields.text_or(request, "topicList").split(";") if name]
        topic = fields.text_or(request, "topic")
        if topic:
            chosen = [topic]
        topics = chosen or sorted(set(self._topics_consumed(group)))
        table: dict[MessageQueue, bodies.QueueProgress] = {}
        for name in topics:
            table |= self._progress(group, name, listed=bool(chosen))
        return response_to(request, body=bodies.encode_consume_stats(bodies.ConsumeStats(table)))

    def _topics_consumed(self, group: str) -> list[str]:
        return [
            topic for topic in self._state.offsets.topics_of(group) if topic in self._state.topics
        ]

    def _progress(
        self, group: str, topic: str, *, listed: bool
    ) -> dict[MessageQueue, bodies.QueueProgress]:
        config = self._state.topics.get(topic)
        if config is None:
            return {}
        members = self._state.consumers.group(group)
        if members is not None and topic not in members.subscriptions and not listed:
            return {}  # the group has turned to other topics
        table = {}
        for queue_id in range(config.read_queues):
            maximum = self._state.store.bounds(topic, queue_id)[1]
            committed = self._state.offsets.get(topic, group, queue_id)
            consumed = max(0, committed if committed is not None else 0)
            table[MessageQueue(topic, self._state.settings.name, queue_id)] = bodies.QueueProgress(
                maximum,
                consumed,
                max(self._state.offsets.pulled(topic, group, queue_id), consumed),
                max(0, self._stored_ms(topic, queue_id, consumed - 1)),
            )
        return table

    def _broker_consume_stats(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        listed = []
        for config in self._state.groups:
            stats = []
            for topic in self._topics_consumed(config.name):
                table = self._progress(config.name, topic, listed=True)
                stats.append(bodies.ConsumeStats(table))
            if stats:
                listed.append({config.name: stats})
        total = sum(
            progress.broker_offset - progress.consumer_offset
            for one in listed
            for stats in one.values()
            for stat in stats
            for progress in stat.queues.values()
        )
        # The tables are keyed by queues, so the document is put together from their texts.
        rows = b",".join(
            b"{%b:[%b]}"
            % (write_document(name), b",".join(map(bodies.encode_consume_stats, stats)))
            for one in listed
            for name, stats in one.items()
        )
        body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":0}' % (
            write_document(self._state.settings.address),
            rows,
            total,
        )
        return response_to(request, body=body)

    def _who_consumes(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic = fields.text(request, "topic")
        groups = {
            *self._state.consumers.groups_of_topic(topic),
            *self._state.offsets.groups_of(topic),
        }
        return response_to(request, body=bodies.encode_group_list(sorted(groups)))

    def _topics_of_group(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        group = fields.text(request, "group")
        topics = self._state.offsets.topics_of(group)
        return response_to(request, body=bodies.encode_topic_list(sorted(topics)))

    def _subscription(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        name, topic = fields.text(request, "group"), fields.text_or(request, "topic")
        group = self._state.consumers.group(name)
        found = None if group is None else group.subscriptions.get(topic)
        body = write_document({"group": name, "subscriptionData": found, "topic": topic})
        return response_to(request, body=body)

    def _time_span(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        topic, group = fields.text(request, "topic"), fields.text(request, "group")
        config = self._state.topics.get(topic)
        if config is None:
            raise RefusalError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = []
        for queue_id in range(config.write_queues):
            maximum = self._state.store.bounds(topic, queue_id)[1]
            consumed = self._state.offsets.get(topic, group, queue_id) or 0
            consumed_ms = self._stored_ms(topic, queue_id, max(0, consumed - 1))
            next_ms = self._stored_ms(topic, queue_id, consumed)
            spans.append(
                {
                    "consumeTimeStamp": consumed_ms,
                    "delayTime": max(0, now_ms - next_ms) if consumed < maximum else 0,
                    "maxTimeStamp": self._stored_ms(topic, queue_id, maximum - 1),
                    "messageQueue": {
                        "brokerName": self._state.settings.name,
                        "queueId": queue_id,
                        "topic": topic,
                    },
                    "minTimeStamp": self._state.store.earliest_time(topic, queue_id),
                }
            )
        return response_to(request, body=write_document({"consumeTimeSpanSet": spans}))

    def _correction_offsets(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """The smallest offsets among groups that a group has consumed together with."""
        del channel, now_ms
        topic, compared = fields.text(request, "topic"), fields.text_or(request, "compareGroup")
        left_out = set(filter(None, fields.text_or(request, "filterGroups").split(",")))
        offsets: dict[int, int] = {}
        for group in self._state.offsets.groups_of(topic):
            if group in left_out or (compared and group == compared):
                continue
            for queue_id, offset in self._state.offsets.queues(topic, group).items():
                offsets[queue_id] = min(offset, offsets.get(queue_id, offset))
        for queue_id, offset in self._state.offsets.queues(topic, compared).items():
            minimum = self._state.store.bounds(topic, queue_id)[0]
            if offset < minimum and queue_id in offsets:
                offsets[queue_id] = max(offsets[queue_id], minimum)
        table = {str(queue_id): offset for queue_id, offset in offsets.items()}
        return response_to(request, body=write_document({"correctionOffsets": table}))

    def _consume_queue(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic, queue_id = fields.text(request, "topic"), fields.number(request, "queueId")
        first = fields.number_or(request, "index")
        count = min(max(0, fields.number_or(request, "count", 10)), _ENTRIES_MAX)
        minimum, maximum = self._state.store.bounds(topic, queue_id)
        rows = []
        for offset in range(max(first, minimum), min(first + count, maximum)):
            message = self._state.message_in(topic, queue_id, offset)
            if message is not None:
                rows.append(
                    {
                        "eval": True,
                        "physicOffset": message.physical_offset,
                        "physicSize": message.store_size,
                        "tagsCode": tag_hash(encode_properties(message.properties)),
                    }
                )
        group = self._state.consumers.group(fields.text_or(request, "consumerGroup"))
        found = None if group is None else group.subscriptions.get(topic)
        body = {
            "filterData": None,
            "maxQueueIndex": maximum,
            "minQueueIndex": minimum,
            "queueData": rows,
            "subscriptionData": found,
        }
        return response_to(request, body=write_document(body))

    def _runtime_info(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        state, tally = self._state, self._state.tally
        low, high = state.store.log_bounds()
        seconds = max(1.0, (now_ms - tally.started_ms) / 1000)
        put_tps, get_tps = f"{tally.stored / seconds:.2f}", f"{tally.given / seconds:.2f}"
        table = {
            "brokerVersion": str(CLIENT_VERSION),
            "brokerVersionDesc": "V" + version_name(CLIENT_VERSION).replace(".", "_"),
            "brokerActive": "true",
            "bootTimestamp": str(tally.started_ms),
            "runtime": f"[ {int(seconds)} seconds ]",
            "commitLogMinOffset": str(low),
            "commitLogMaxOffset": str(high),
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "msgPutTotalTodayNow": str(tally.stored),
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayNow": str(tally.given),
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalYesterdayMorning": "0",
            "putTps": f"{put_tps} {put_tps} {put_tps}",
            "getTransferredTps": f"{get_tps} {get_tps} {get_tps}",
            "getFoundTps": f"{get_tps} {get_tps} {get_tps}",
            "getMissTps": "0.0 0.0 0.0",
            "getTotalTps": f"{get_tps} {get_tps} {get_tps}",
            "putMessageTimesTotal": str(tally.stored),
            "getMessageEntireTimeMax": "0",
            "putMessageEntireTimeMax": "0",
            "sendThreadPoolQueueSize": "0",
            "sendThreadPoolQueueCapacity": "0",
            "pullThreadPoolQueueSize": "0",
            "pullThreadPoolQueueCapacity": "0",
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "pageCacheLockTimeMills": "0",
            "remainTransientStoreBufferNumbs": "0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        return response_to(request, body=bodies.encode_kv_table(table))

    def _stats_data(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """The counters that Java keeps by minute, hour and day; this broker does not."""
        del channel, now_ms
        name = fields.text_or(request, "statsName")
        key = fields.text_or(request, "statsKey")
        raise RefusalError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")

    def _earliest_ms(self) -> int:
        times = (
            self._state.store.earliest_time(topic, queue_id)
            for topic in self._state.store.topics()
            if not topic.startswith(RETRY_PREFIX)
            for queue_id in self._state.store.queues(topic)
        )
        return min((one for one in times if one > 0), default=-1)

    def _stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at an offset was stored; -1 when it is not there."""
        message = self._state.message_in(topic, queue_id, offset) if offset >= 0 else None
        return -1 if message is None else message.store_timestamp_ms
