"""The topics of one broker: what each is, how new ones come about, and when routes must change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from gimbalmq.broker.documents import Documents
from gimbalmq.broker.effects import RefusalError
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.core.delays import SCHEDULE_TOPIC
from gimbalmq.wire.bodies import (
    DataVersion,
    TopicConfig,
    TopicConfigTable,
    decode_topic_table,
    encode_topic_table,
)
from gimbalmq.wire.codes import Perm, ResponseCode
from gimbalmq.wire.names import TEMPLATE_TOPIC, is_stored_topic, is_system_topic, reply_topic

__all__ = [
    "CHECKED_OUT_TOPIC",
    "HALF_TOPIC",
    "OP_TOPIC",
    "TIMER_TOPIC",
    "TopicTable",
]

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: Half messages that nobody decided after the last check.
CHECKED_OUT_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

_DOCUMENT: Final = "topics"
_READ_WRITE: Final = int(Perm.READ | Perm.WRITE)
_TEMPLATE_PERM: Final = int(Perm.READ | Perm.WRITE | Perm.INHERIT)


class TopicTable:
    """Topics by name, saved with every change.

    `changed` is set by every change and cleared by whoever tells the name servers.
    """

    def __init__(self, settings: BrokerSettings, documents: Documents, now_ms: int) -> None:
        #: Replaced when an administrator changes them.
        self.settings = settings
        self._documents = documents
        self.changed = False
        data = documents.load(_DOCUMENT)
        table = TopicConfigTable() if data is None else decode_topic_table(data)
        self._topics = dict(table.topics)
        self.version = table.data_version
        missing = [one for one in _system_topics(settings) if one.name not in self._topics]
        if missing:
            self._replace(self._topics | {one.name: one for one in missing}, now_ms)

    def get(self, topic: str) -> TopicConfig | None:
        """A topic, or None."""
        return self._topics.get(topic)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(self._topics.values()))

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def table(self) -> TopicConfigTable:
        """All topics, as a registration and GET_ALL_TOPIC_CONFIG carry them."""
        return TopicConfigTable(dict(self._topics), self.version)

    def put(self, config: TopicConfig, now_ms: int) -> None:
        """Make or change a topic.

        Raises:
            RefusalError: the table or the number of queues is at its limit.
        """
        if self._topics.get(config.name) == config:
            return
        if config.name not in self._topics and len(self._topics) >= self.settings.topics_max:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                f"broker {self.settings.name} holds {len(self._topics)} topics, its limit: "
                "delete some, or raise topics_max",
            )
        if max(config.read_queues, config.write_queues) > self.settings.queues_max:
            raise RefusalError(
                ResponseCode.INVALID_PARAMETER,
                f"topic '{config.name}' would have more than {self.settings.queues_max} queues",
            )
        self._replace(self._topics | {config.name: config}, now_ms)

    def ensure(self, topic: str, queues: int, now_ms: int) -> TopicConfig:
        """A topic of the broker's own making (retry, dead letters): as it is, or new."""
        config = self._topics.get(topic)
        if config is None:
            config = TopicConfig(topic, queues, queues, _READ_WRITE)
            self.put(config, now_ms)
        return config

    def create_from_template(
        self, topic: str, template: str, queues: int, now_ms: int
    ) -> TopicConfig | None:
        """The topic that a send to an unknown name brings about; None when it must not."""
        source = self._topics.get(template)
        if source is None or not source.perm & Perm.INHERIT:
            return None
        if template == TEMPLATE_TOPIC and not self.settings.auto_create_topic:
            return None
        count = max(0, min(queues, source.write_queues))
        config = TopicConfig(
            topic, count, count, source.perm & ~Perm.INHERIT, source.filter_type, source.sys_flag
        )
        self.put(config, now_ms)
        return config

    def delete(self, topic: str, now_ms: int) -> bool:
        """Forget a topic; whether it was there."""
        if topic not in self._topics:
            return False
        left = {name: config for name, config in self._topics.items() if name != topic}
        self._replace(left, now_ms)
        return True

    def is_protected(self, topic: str) -> bool:
        """Whether the topic is the broker's own, which clients may neither change nor delete."""
        own = {self.settings.cluster, self.settings.name, reply_topic(self.settings.cluster)}
        return is_system_topic(topic) or topic in own

    def _replace(self, topics: dict[str, TopicConfig], now_ms: int) -> None:
        """Save, then adopt: a topic that could not be saved is not there."""
        version = DataVersion(now_ms, self.version.counter + 1, self.version.state_version)
        self._documents.save(_DOCUMENT, encode_topic_table(TopicConfigTable(topics, version)))
        self._topics, self.version, self.changed = topics, version, True


def _system_topics(settings: BrokerSettings) -> list[TopicConfig]:
    def own(name: str, queues: int = 1, perm: int = _READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm)

    topics = [
        own("SELF_TEST_TOPIC"),
        own("BenchmarkTest", 1024),
        own(settings.cluster, 16, _TEMPLATE_PERM),
        own(settings.name, 1, _TEMPLATE_PERM),
        own("OFFSET_MOVED_EVENT"),
        own(SCHEDULE_TOPIC, len(settings.delay_levels_ms)),
        own(reply_topic(settings.cluster)),
        own(HALF_TOPIC),
        own(OP_TOPIC),
        own(f"rmq_sys_REVIVE_LOG_{settings.cluster}", 8),
        own(f"rmq_sys_SYNC_BROKER_MEMBER_{settings.name}"),
        own(TIMER_TOPIC),
    ]
    if settings.auto_create_topic:
        topics.append(own(TEMPLATE_TOPIC, settings.default_queues, _TEMPLATE_PERM))
    return topics


def check_topic_name(topic: str) -> None:
    """Refuse a name that no topic may have."""
    if not is_stored_topic(topic):
        raise RefusalError(
            ResponseCode.INVALID_PARAMETER,
            f"The specified topic[{topic[:300]}] contains illegal characters, allowing only "
            "% | a-z A-Z 0-9 _ - and at most 127 of them (255 for retry and dead-letter topics).",
        )


def parse_attributes(text: str, before: dict[str, str]) -> dict[str, str]:
    """Apply `+key=value,-key` to the attributes of a topic or a group."""
    attributes = dict(before)
    for part in filter(None, text.split(",")):
        key, separator, value = part[1:].partition("=")
        if part[0] == "+" and separator and key:
            attributes[key] = value
        elif part[0] == "-" and key and not separator:
            attributes.pop(key, None)
        else:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                f"'{part}' is no attribute change: write +key=value or -key",
            )
    return attributes


def with_attributes(config: TopicConfig, text: str, before: TopicConfig | None) -> TopicConfig:
    """A topic with its attributes changed as an admin's text says."""
    kept = {} if before is None else before.attributes
    return msgspec.structs.replace(config, attributes=parse_attributes(text, kept))
