"""Administration: topics, groups, statistics and the broker's own settings.

Follows AdminBrokerProcessor of 5.5 in what is asked and answered; figures of a Java process
(threads, page cache) are left out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.broker.nameserver import format_settings, parse_settings
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.topics import check_topic_name, with_attributes
from gimbalmq.wire import bodies
from gimbalmq.wire.bodies.shape import convert, read_document
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.names import is_group

__all__ = ["AdminProcessor"]

_TOPICS_AT_ONCE_MAX: Final = 10_000

#: Settings that a running broker takes: Java's name, ours, and how many of ours Java's unit is.
_CHANGEABLE: Final = {
    "autoCreateTopicEnable": ("auto_create_topic", 1),
    "autoCreateSubscriptionGroup": ("auto_create_group", 1),
    "enablePropertyFilter": ("property_filter", 1),
    "recallMessageEnable": ("recall", 1),
    "maxMessageSize": ("body_bytes_max", 1),
    "maxTransferCountOnMessageInMemory": ("pull_messages_max", 1),
    "maxTransferBytesOnMessageInMemory": ("pull_bytes_max", 1),
    "transactionTimeOut": ("transaction_timeout_ms", 1),
    "transactionCheckInterval": ("transaction_check_ms", 1),
    "transactionCheckMax": ("transaction_checks_max", 1),
    "timerMaxDelaySec": ("timer_max_ms", 1000),
    "flushConsumerOffsetInterval": ("offsets_save_ms", 1),
}


class AdminProcessor:
    """Makes, changes and lists what the broker keeps."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._changes = 0

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        code = RequestCode
        return {
            code.UPDATE_AND_CREATE_TOPIC: self._put_topic,
            code.UPDATE_AND_CREATE_TOPIC_LIST: self._put_topics,
            code.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            code.GET_ALL_TOPIC_CONFIG: self._all_topics,
            code.GET_TOPIC_CONFIG: self._topic,
            code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put_group,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._put_groups,
            code.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            code.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
            code.GET_BROKER_CONFIG: self._get_config,
            code.UPDATE_BROKER_CONFIG: self._update_config,
        }

    # Topics

    def _put_topic(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        name = fields.text(request, "topic")
        config = bodies.TopicConfig(
            name,
            max(0, fields.number(request, "readQueueNums")),
            max(0, fields.number(request, "writeQueueNums")),
            fields.number(request, "perm"),
            fields.text(request, "topicFilterType"),
            fields.number_or(request, "topicSysFlag"),
            fields.flag(request, "order"),
        )
        self._put(config, fields.text_or(request, "attributes"), now_ms)
        return response_to(request)

    def _put_topics(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        listed = read_document(request.body, "topic list").get("topicConfigList", [])
        configs = convert(listed, list[bodies.TopicConfig], "topic list")
        for config in configs[:_TOPICS_AT_ONCE_MAX]:
            self._check_name(config.name)
        for config in configs[:_TOPICS_AT_ONCE_MAX]:
            self._put(config, "", now_ms)
        return response_to(request)

    def _put(self, config: bodies.TopicConfig, attributes: str, now_ms: int) -> None:
        self._check_name(config.name)
        before = self._state.topics.get(config.name)
        self._state.topics.put(with_attributes(config, attributes, before), now_ms)

    def _check_name(self, topic: str) -> None:
        check_topic_name(topic)
        if self._state.topics.is_protected(topic):
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
            )

    def _delete_topic(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        topic = fields.text(request, "topic")
        self._check_name(topic)
        if self._state.topics.delete(topic, now_ms):
            self._state.offsets.forget_topic(topic)
            self._state.store.delete_topic(topic)
        return response_to(request)

    def _all_topics(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        table = self._state.topics.table()
        total = str(len(table.topics))
        page = _page(request, list(table.topics), "topicSeq", "maxTopicNum")
        listed = {name: table.topics[name] for name in page}
        return response_to(
            request,
            fields={"totalTopicNum": total},
            body=bodies.encode_topic_table(bodies.TopicConfigTable(listed, table.data_version)),
        )

    def _topic(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topic = fields.text(request, "topic")
        config = self._state.topics.get(topic)
        if config is None:
            raise RefusalError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {topic}",
            )
        return response_to(request, body=bodies.encode_topic_config(config))

    def _system_topics(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        topics = self._state.topics
        names = [one.name for one in topics if topics.is_protected(one.name)]
        return response_to(request, body=bodies.encode_topic_list(names))

    # Groups

    def _put_group(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        self._put_one_group(bodies.decode_group_config(request.body), now_ms)
        return response_to(request)

    def _put_groups(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        listed = read_document(request.body, "group list").get("groupConfigList", [])
        for config in convert(listed, list[bodies.GroupConfig], "group list"):
            self._put_one_group(config, now_ms)
        return response_to(request)

    def _put_one_group(self, config: bodies.GroupConfig, now_ms: int) -> None:
        if not is_group(config.name):
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"'{config.name[:300]}' is no group name: use 1 to 120 of the characters "
                "a-z A-Z 0-9 _ - % |",
            )
        before = self._state.groups.get(config.name)
        kept = {} if before is None else before.attributes
        added = {name.lstrip("+"): value for name, value in config.attributes.items()}
        self._state.groups.put(
            msgspec.structs.replace(config, attributes={**kept, **added}), now_ms
        )

    def _delete_group(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        group = fields.text(request, "groupName")
        self._state.groups.delete(group, now_ms)
        if fields.flag(request, "cleanOffset") or fields.flag(request, "removeOffset"):
            self._state.offsets.forget_group(group)
        return response_to(request)

    def _all_groups(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        table = self._state.groups.table()
        total = str(len(table.groups))
        page = _page(request, list(table.groups), "groupSeq", "maxGroupNum")
        listed = {name: table.groups[name] for name in page}
        return response_to(
            request,
            fields={"totalGroupNum": total},
            body=bodies.encode_group_table(bodies.GroupConfigTable(listed, table.data_version)),
        )

    def _group(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel
        config = self._state.groups.require(fields.text(request, "group"), now_ms)
        return response_to(request, body=bodies.encode_group_config(config))

    # Settings

    def _get_config(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        settings = self._state.settings
        shown = {
            "brokerName": settings.name,
            "brokerClusterName": settings.cluster,
            "brokerId": str(settings.broker_id),
            "brokerIP1": settings.host,
            "listenPort": str(settings.port),
        }
        for name, (attribute, unit) in _CHANGEABLE.items():
            value = getattr(settings, attribute)
            shown[name] = _text(value) if isinstance(value, bool) else str(value // unit)
        version = bodies.DataVersion(self._state.tally.started_ms, self._changes)
        return response_to(
            request,
            fields={"version": bodies.encode_data_version(version).decode()},
            body=format_settings(shown),
        )

    def _update_config(self, request: Command, channel: Channel, now_ms: int) -> Command:
        """Change settings until the next start; the remark names those that cannot be changed."""
        del channel, now_ms
        changed: dict[str, int | bool] = {}
        ignored: list[str] = []
        for name, text in parse_settings(bytes(request.body)).items():
            if name not in _CHANGEABLE:
                ignored.append(name)
                continue
            attribute, unit = _CHANGEABLE[name]
            if isinstance(getattr(self._state.settings, attribute), bool):
                changed[attribute] = text.lower() == "true"
            elif text.isascii() and text.isdigit() and len(text) < 19:
                changed[attribute] = int(text) * unit
            else:
                raise RefusalError(
                    ResponseCode.INVALID_PARAMETER, f"setting {name} is '{text}', no number"
                )
        self._state.change_settings(msgspec.structs.replace(self._state.settings, **changed))
        self._changes += 1
        remark = f"this broker cannot change: {', '.join(sorted(ignored))}" if ignored else None
        return response_to(request, remark=remark)


def _page(request: Command, names: list[str], first_field: str, count_field: str) -> list[str]:
    """The names that a request wants of a listing: all, or as many as it says from a place on."""
    if first_field not in request.fields:
        return names
    first = max(0, fields.number(request, first_field))
    count = max(1, fields.number_or(request, count_field, len(names) or 1))
    return names[first : first + count]


def _text(value: object) -> str:
    return "true" if value else "false"
