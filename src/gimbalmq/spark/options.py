"""The options of `format("rocketmq")`: their names, and what their texts mean.

Every error names the option as the documentation writes it and says what to write instead. Keys
are compared whatever their case, as Spark does. This file asks nobody: whether a topic exists is
found out later.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue, parse_queue
from gimbalmq.spark.positions import (
    COMMITTED,
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    Committed,
    Position,
)
from gimbalmq.spark.schema import Column, parse_columns
from gimbalmq.transport.address import parse_nameservers
from gimbalmq.transport.nameservers import instance_namespace
from gimbalmq.transport.reach import PLAIN, Reach, TlsFiles, reach_of
from gimbalmq.wire.names import Namespace, check_group, check_topic, is_topic
from gimbalmq.wire.subscription import SubscriptionData, parse_tags, sql_subscription

__all__ = [
    "DEFAULT_GROUP",
    "READ_NAMES",
    "ReadOptions",
    "check_names",
    "count_option",
    "flag_option",
    "has_stream_options",
    "lowered",
    "nameservers_option",
    "namespace_option",
    "parse_read_options",
    "reach_option",
]

#: In whose name a read without `group` pulls. Nothing is ever committed for it.
DEFAULT_GROUP: Final = "gimbalmq-spark"

_READ: Final = (
    "nameserver",
    "topic",
    "topicPattern",
    "group",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "tags",
    "sql",
    "columns",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
#: Known, and of use to streams only.
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitOffsets",
    "groupMode",
    "allocation",
)
#: What reads of either kind know, besides the way to the cluster.
READ_NAMES: Final = _READ + _STREAM_ONLY
#: Known, and of use to batch reads only.
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
#: Known, and of use to writes only.
_WRITE_ONLY: Final = ("selector", "maxInFlight", "maxRowsPerSecond", "idColumn")
#: Of use to reads and writes.
_ACCESS: Final = (
    "accessKey",
    "secretKey",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "namespace",
)

_KNOWN: Final = {name.lower(): name for name in READ_NAMES + _WRITE_ONLY + _ACCESS}
#: What Spark itself puts beside a source's options.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "serialization.format"})

_POSITIONS: Final[dict[str, Position]] = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "committed": COMMITTED,
}


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a batch read, understood and checked. Picklable: tasks carry it."""

    nameservers: tuple[str, ...]
    topics: tuple[str, ...]
    topic_pattern: str | None
    group: str | None
    start: Position
    end: Position
    tags: str | None
    sql: str | None
    columns: tuple[Column, ...]
    fail_on_data_loss: bool
    partitions_min: int | None
    partition_records_max: int | None
    #: The group's own retry topic, where it is read as a member: its messages have passed the
    #: filter before, and all members must ask for the same there.
    retry_topic: str | None = None
    #: Keys and TLS; the secret is left out of its text form.
    reach: Reach = PLAIN
    #: Whose topics and groups are meant; those above are as brokers know them.
    namespace: Namespace = Namespace()

    @property
    def pull_group(self) -> str:
        """The group in whose name is pulled."""
        return self.group or self.namespace.wire(DEFAULT_GROUP)

    @property
    def filtered(self) -> bool:
        """Whether the broker leaves messages out."""
        return self.sql is not None or bool(parse_tags("", self.tags, 0).tags)

    def subscription(self, topic: str) -> SubscriptionData:
        """What pulls of a topic ask for."""
        if topic == self.retry_topic:
            return parse_tags(topic, "*", 0)
        if self.sql is not None:
            return sql_subscription(topic, self.sql, 0)
        return parse_tags(topic, self.tags, 0)


def check_names(options: Mapping[str, str]) -> None:
    """Refuse names that no read and no write of this source knows."""
    for name in options:
        small = name.lower()
        if small in _KNOWN or small in _SPARKS_OWN:
            continue
        if small in {"path", "paths"}:
            raise ConfigurationError(
                f"option '{name}' means nothing to this source: "
                "call load() without a path and name the topic with option 'topic'"
            )
        close = difflib.get_close_matches(small, _KNOWN, n=1)
        hint = f"did you mean '{_KNOWN[close[0]]}'? " if close else ""
        raise ConfigurationError(f"unknown option '{name}': {hint}A read knows {', '.join(_READ)}")


def has_stream_options(options: Mapping[str, str]) -> bool:
    """Whether options are given that only a stream has."""
    names = {name.lower() for name in options}
    return any(name.lower() in names for name in _STREAM_ONLY)


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """The options with their names in lower case, as they are looked up, and trimmed texts."""
    return {name.lower(): value.strip() for name, value in options.items()}


def parse_read_options(
    options: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    *,
    stream: bool = False,
) -> ReadOptions:
    """Read the options of a batch read, or those that a stream has in common with it.

    `environment` replaces that of the process.

    >>> options = parse_read_options({"nameserver": "127.0.0.1:9876", "topic": "orders"})
    >>> options.topics, options.start, options.end
    (('orders',), Earliest(), Latest())

    Raises:
        ConfigurationError: naming the option that cannot be used.
    """
    check_names(options)
    given = lowered(options)
    _refuse_others(given, stream=stream)
    space = namespace_option(given)
    group = _group(given, space)
    default = LATEST if stream else EARLIEST
    start = _position(given, "startingOffsets", "startingTimestamp", default, space)
    end = _position(given, "endingOffsets", "endingTimestamp", LATEST, space)
    _check_order(start, end)
    for option, position in (("startingOffsets", start), ("endingOffsets", end)):
        if isinstance(position, Committed) and group is None:
            raise ConfigurationError(
                f"option '{option}' is 'committed', but no group is named: add option 'group'"
            )
    topics, pattern = _topics(given, space)
    tags, sql = _filters(given)
    return ReadOptions(
        reach=reach_option(given),
        namespace=space,
        nameservers=nameservers_option(given, environment),
        topics=topics,
        topic_pattern=pattern,
        group=group,
        start=start,
        end=end,
        tags=tags,
        sql=sql,
        columns=parse_columns(given.get("columns")),
        fail_on_data_loss=flag_option(given, "failOnDataLoss", default=True),
        partitions_min=count_option(given, "minPartitions"),
        partition_records_max=count_option(given, "maxRecordsPerPartition"),
    )


def _refuse_others(given: Mapping[str, str], *, stream: bool) -> None:
    for name in _BATCH_ONLY if stream else _STREAM_ONLY:
        if name.lower() in given:
            raise ConfigurationError(
                f"option '{name}' is for batch reads (spark.read): a stream has no end"
                if stream
                else f"option '{name}' is for streams (spark.readStream): "
                "leave it out of a batch read"
            )
    for name in _WRITE_ONLY:
        if name.lower() in given:
            raise ConfigurationError(f"option '{name}' is for writes: leave it out of a read")


def reach_option(given: Mapping[str, str]) -> Reach:
    """Read the options for keys and TLS."""
    ca_file, cert_file, key_file = (
        given.get(name) for name in ("tlscafile", "tlscertfile", "tlskeyfile")
    )
    any_file = any((ca_file, cert_file, key_file))
    tls = flag_option(given, "tls", default=any_file)
    if any_file and not tls:
        raise ConfigurationError(
            "option 'tls' is false, but certificate files are given: leave one of them out"
        )
    try:
        files = TlsFiles(ca_file=ca_file, cert_file=cert_file, key_file=key_file)
        return reach_of(
            access_key=given.get("accesskey"),
            secret_key=given.get("secretkey"),
            tls=files if tls else False,
        )
    except ConfigurationError as error:
        raise ConfigurationError(
            f"options 'accessKey', 'secretKey' and 'tls...': {error}"
        ) from error


def namespace_option(given: Mapping[str, str]) -> Namespace:
    """Read the option for the namespace, which an instance's endpoint may stand for, as well."""
    name = given.get("namespace")
    if name is None:
        return Namespace(instance_namespace(given.get("nameserver")))
    if not is_topic(name) or "%" in name:
        raise ConfigurationError(
            f"option 'namespace' is '{name}': use the characters a-z A-Z 0-9 _ - |, or leave it out"
        )
    return Namespace(name)


def nameservers_option(
    given: Mapping[str, str], environment: Mapping[str, str] | None
) -> tuple[str, ...]:
    """Read the option for the name servers; `environment` replaces that of the process."""
    text = given.get("nameserver")
    try:
        return parse_nameservers(text, environment)
    except ConfigurationError as error:
        if text:
            raise ConfigurationError(f"option 'nameserver': {error}") from error
        raise ConfigurationError(
            "option 'nameserver' is missing: write host:9876 (several are separated by ';'), or "
            "set the environment variable NAMESRV_ADDR before the Spark session starts"
        ) from error


def _topics(given: Mapping[str, str], space: Namespace) -> tuple[tuple[str, ...], str | None]:
    listed, pattern = given.get("topic"), given.get("topicpattern")
    if listed is not None and pattern is not None:
        raise ConfigurationError("options 'topic' and 'topicPattern' exclude each other: give one")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(
                f"option 'topicPattern' is no regular expression: '{pattern}': {error}"
            ) from error
        return (), pattern
    if not listed:
        raise ConfigurationError(
            "option 'topic' is missing: name the topics to read, separated by commas, "
            "or give option 'topicPattern'"
        )
    try:
        names = [check_topic(space.wire(part.strip())) for part in listed.split(",")]
    except ConfigurationError as error:
        raise ConfigurationError(f"option 'topic': {error}") from error
    return tuple(dict.fromkeys(names)), None


def _group(given: Mapping[str, str], space: Namespace) -> str | None:
    name = given.get("group")
    if name is None:
        return None
    try:
        return check_group(space.wire(name))
    except ConfigurationError as error:
        raise ConfigurationError(f"option 'group': {error}") from error


def _filters(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    tags, sql = given.get("tags"), given.get("sql")
    if tags is not None and sql is not None:
        raise ConfigurationError("options 'tags' and 'sql' exclude each other: give one")
    if sql is not None and not sql:
        raise ConfigurationError("option 'sql' is empty: write a condition, or leave it out")
    if tags is not None:
        try:
            parse_tags("", tags, 0)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"option 'tags' is '{tags}' and names no tag: write tags joined by ||, or * for all"
            ) from error
    return tags, sql


def _position(
    given: Mapping[str, str], by_offset: str, by_time: str, default: Position, space: Namespace
) -> Position:
    offsets, time = given.get(by_offset.lower()), given.get(by_time.lower())
    if offsets is not None and time is not None:
        raise ConfigurationError(f"options '{by_offset}' and '{by_time}' exclude each other")
    if time is not None:
        return AtTime(_milliseconds(time, by_time))
    if offsets is None:
        return default
    known = _POSITIONS.get(offsets.lower())
    if known is not None:
        return known
    listed = _json_offsets(offsets, by_offset)
    return AtOffsets({space.wire_queue(queue): offset for queue, offset in listed.items()})


def _json_offsets(text: str, option: str) -> dict[MessageQueue, int]:
    what = (
        f"option '{option}' is '{_shortened(text)}': write earliest, latest, committed or JSON like "
        '{"topic/broker/queueId": offset}, where -2 is the earliest and -1 the latest offset'
    )
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(what) from error
    if not isinstance(read, dict) or not read:
        raise ConfigurationError(what)
    offsets = {}
    for path, offset in read.items():
        try:
            queue = parse_queue(path)
        except ConfigurationError as error:
            raise ConfigurationError(f"option '{option}': {error}") from error
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < -2:
            raise ConfigurationError(
                f"option '{option}' gives {path} the offset {json.dumps(offset)}: "
                "write a number from 0 on, -2 for the earliest or -1 for the latest"
            )
        offsets[queue] = offset
    return offsets


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _milliseconds(text: str, option: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option '{option}' is '{text}', which is no time: write milliseconds since 1970 or "
            "ISO-8601 with a time zone, for example 2026-11-15T08:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"option '{option}' is '{text}' and says no time zone: "
            "add Z for UTC or an offset like +01:00"
        )
    return round(moment.timestamp() * 1000)


def _check_order(start: Position, end: Position) -> None:
    match start, end:
        case AtTime(first), AtTime(last) if first > last:
            raise ConfigurationError(
                f"option 'endingTimestamp' ({last} ms) is before 'startingTimestamp' ({first} ms)"
            )
        case AtOffsets(firsts), AtOffsets(lasts):
            for queue, first in firsts.items():
                last = lasts.get(queue, first)
                if first >= 0 and 0 <= last < first:
                    raise ConfigurationError(
                        f"option 'endingOffsets' ends {queue.path} at {last}, "
                        f"before 'startingOffsets' starts it at {first}"
                    )
        case _:
            return


def flag_option(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """The value of an option that is true or false, out of `lowered` ones."""
    text = given.get(option.lower())
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise ConfigurationError(f"option '{option}' is '{text}': write true or false")
    return text.lower() == "true"


def count_option(given: Mapping[str, str], option: str) -> int | None:
    """The value of an option that is a number from 1 on, out of `lowered` ones."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigurationError(f"option '{option}' is '{text}': write a whole number from 1 on")
    return int(text)
