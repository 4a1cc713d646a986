"""Configuration of topics and groups, and how a broker registers with a name server."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gimbalmq.errors import ProtocolError
from gimbalmq.wire.bodies.shape import (
    Document,
    convert,
    java_names,
    read_document,
    write_document,
)
from gimbalmq.wire.codes import CompressionType
from gimbalmq.wire.compression import decompress
from gimbalmq.wire.lenient_json import read_json

__all__ = [
    "DataVersion",
    "GroupConfig",
    "GroupConfigTable",
    "TopicConfig",
    "TopicConfigTable",
    "decode_data_version",
    "decode_group_config",
    "decode_group_list",
    "decode_group_table",
    "decode_kv_table",
    "decode_registration",
    "decode_topic_config",
    "decode_topic_list",
    "decode_topic_table",
    "encode_data_version",
    "encode_group_config",
    "encode_group_list",
    "encode_group_table",
    "encode_kv_table",
    "encode_registration",
    "encode_topic_config",
    "encode_topic_list",
    "encode_topic_table",
    "format_topic_config",
    "parse_topic_config",
]

#: From this request version on (5.0.0) a compressed registration has a section for static topics.
_MAPPING_SECTION_VERSION: Final = 413


class DataVersion(msgspec.Struct, frozen=True, rename=java_names()):
    """By what a name server sees that a broker's topics have changed."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0


class TopicConfig(
    msgspec.Struct,
    frozen=True,
    rename=java_names(
        name="topicName",
        read_queues="readQueueNums",
        write_queues="writeQueueNums",
        filter_type="topicFilterType",
        sys_flag="topicSysFlag",
    ),
):
    """A topic as its broker keeps it."""

    name: str = ""
    read_queues: int = 16
    write_queues: int = 16
    perm: int = 6
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class TopicConfigTable(msgspec.Struct, frozen=True, rename=java_names(topics="topicConfigTable")):
    """All topics of a broker."""

    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = DataVersion()


class GroupConfig(
    msgspec.Struct,
    frozen=True,
    rename=java_names(name="groupName", retry_queues="retryQueueNums", sys_flag="groupSysFlag"),
):
    """A consumer group as its broker keeps it."""

    name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class GroupConfigTable(
    msgspec.Struct, frozen=True, rename=java_names(groups="subscriptionGroupTable")
):
    """All groups of a broker."""

    groups: dict[str, GroupConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)


def encode_data_version(version: DataVersion) -> bytes:
    """A data version as JSON."""
    return write_document(version)


def decode_data_version(data: Document) -> DataVersion:
    """Read a data version."""
    return convert(read_document(data, "data version"), DataVersion, "data version")


def encode_topic_config(config: TopicConfig) -> bytes:
    """The answer to GET_TOPIC_CONFIG."""
    return write_document(config)


def decode_topic_config(data: Document) -> TopicConfig:
    """Read the answer to GET_TOPIC_CONFIG."""
    return convert(read_document(data, "topic config"), TopicConfig, "topic config")


def encode_topic_table(table: TopicConfigTable) -> bytes:
    """The answer to GET_ALL_TOPIC_CONFIG."""
    return write_document(table)


def decode_topic_table(data: Document) -> TopicConfigTable:
    """Read the answer to GET_ALL_TOPIC_CONFIG."""
    return convert(read_document(data, "topic configs"), TopicConfigTable, "topic configs")


def encode_group_config(config: GroupConfig) -> bytes:
    """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    return write_document(config)


def decode_group_config(data: Document) -> GroupConfig:
    """Read the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    return convert(read_document(data, "group config"), GroupConfig, "group config")


def encode_group_table(table: GroupConfigTable) -> bytes:
    """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
    return write_document(table)


def decode_group_table(data: Document) -> GroupConfigTable:
    """Read the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
    return convert(read_document(data, "group configs"), GroupConfigTable, "group configs")


def encode_topic_list(topics: Iterable[str]) -> bytes:
    """A list of topics."""
    return write_document({"topicList": list(topics)})


def decode_topic_list(data: Document) -> tuple[str, ...]:
    """Read a list of topics."""
    return convert(
        read_document(data, "topic list").get("topicList", []), tuple[str, ...], "topic list"
    )


def encode_group_list(groups: Iterable[str]) -> bytes:
    """A list of groups."""
    return write_document({"groupList": list(groups)})


def decode_group_list(data: Document) -> tuple[str, ...]:
    """Read a list of groups."""
    return convert(
        read_document(data, "group list").get("groupList", []), tuple[str, ...], "group list"
    )


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """A table of texts (GET_BROKER_RUNTIME_INFO, GET_KVLIST_BY_NAMESPACE)."""
    return write_document({"table": dict(table)})


def decode_kv_table(data: Document) -> dict[str, str]:
    """Read a table of texts."""
    return convert(read_document(data, "table").get("table", {}), dict[str, str], "table")


def format_topic_config(config: TopicConfig, *, attributes: bool = True) -> str:
    """A topic on one line, as compressed registrations carry it; 4.x has no attributes.

    >>> format_topic_config(TopicConfig("orders", 4, 4))
    'orders 4 4 6 SINGLE_TAG {}'
    """
    text = (
        f"{config.name} {config.read_queues} {config.write_queues} {config.perm} "
        f"{config.filter_type}"
    )
    return f"{text} {write_document(config.attributes).decode()}" if attributes else text


def parse_topic_config(text: str) -> TopicConfig:
    """Read a topic from one line.

    >>> parse_topic_config("orders 4 8 6 SINGLE_TAG").write_queues
    8
    """
    name, *rest = text.split(" ", 5)
    try:
        read_queues, write_queues, perm = map(int, rest[:3])
        filter_type = rest[3]
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"'{text}' is no topic config: five words must stand there") from error
    attributes = rest[4] if len(rest) > 4 else ""
    return TopicConfig(
        name,
        read_queues,
        write_queues,
        perm,
        filter_type,
        attributes=convert(
            read_json(attributes.encode()) if attributes else {}, dict[str, str], "attributes"
        ),
    )


def encode_registration(
    table: TopicConfigTable, *, compressed: bool = False, version: int = _MAPPING_SECTION_VERSION
) -> bytes:
    """The body of REGISTER_BROKER; `version` is that of the request's header."""
    if not compressed:
        wrapper = msgspec.to_builtins(table)
        if version >= _MAPPING_SECTION_VERSION:
            wrapper |= {
                "mappingDataVersion": DataVersion(),
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            }
        return write_document({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
    mapped = version >= _MAPPING_SECTION_VERSION
    sections = [_sized(encode_data_version(table.data_version)), _count(len(table.topics))]
    sections += (
        _sized(format_topic_config(topic, attributes=mapped).encode())
        for topic in table.topics.values()
    )
    sections.append(_sized(b"[]"))
    if mapped:
        sections.append(_count(0))
    return zlib.compress(b"".join(sections))


def decode_registration(data: Document, *, compressed: bool = False) -> TopicConfigTable:
    """Read the body of REGISTER_BROKER; no body is an empty table."""
    what = "broker registration"
    if not compressed:
        wrapper = read_document(data, what).get("topicConfigSerializeWrapper", {})
        return convert(wrapper, TopicConfigTable, what)
    plain = decompress(bytes(data), CompressionType.ZLIB)
    version, position = _take(plain, 0, what)
    count = int.from_bytes(plain[position : position + 4], "big")
    position += 4
    topics: dict[str, TopicConfig] = {}
    for _ in range(count):
        text, position = _take(plain, position, what)
        config = parse_topic_config(str(text, "utf-8", "replace"))
        topics[config.name] = config
    return TopicConfigTable(topics, decode_data_version(version))


def _count(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _sized(data: bytes) -> bytes:
    return _count(len(data)) + data


def _take(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    until = position + 4 + int.from_bytes(data[position : position + 4], "big")
    if position + 4 > len(data) or until > len(data):
        raise ProtocolError(f"{what} is cut off at byte {position}")
    return data[position + 4 : until], until
