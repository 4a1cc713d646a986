"""The options of a read by `format("rocketmq")`, understood and checked.

Every error names the option as the documentation writes it and says what to write instead. This
file asks nobody: whether a topic exists is found out later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.option_names import check_names, lowered, refuse_others
from gimbalmq.spark.option_values import (
    count_option,
    flag_option,
    nameservers_option,
    namespace_option,
    reach_option,
)
from gimbalmq.spark.position_options import check_order, position_option
from gimbalmq.spark.positions import EARLIEST, LATEST, Committed, Position
from gimbalmq.spark.schema import Column, parse_columns
from gimbalmq.transport.reach import PLAIN, Reach
from gimbalmq.wire.names import Namespace, check_group, check_topic
from gimbalmq.wire.subscription import SubscriptionData, parse_tags, sql_subscription

__all__ = ["DEFAULT_GROUP", "ReadOptions", "parse_read_options"]

#: In whose name a read without `group` pulls. Nothing is ever committed for it.
DEFAULT_GROUP: Final = "gimbalmq-spark"


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
    refuse_others(given, stream=stream)
    space = namespace_option(given)
    group = _group(given, space)
    default = LATEST if stream else EARLIEST
    start = position_option(given, "startingOffsets", "startingTimestamp", default, space)
    end = position_option(given, "endingOffsets", "endingTimestamp", LATEST, space)
    check_order(start, end)
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
