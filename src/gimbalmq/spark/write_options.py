"""The options of a write: their names, and what their texts mean.

Every error names the option as the documentation writes it. This file asks nobody: whether a
topic exists is found out by the tasks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.option_names import READ_NAMES, check_names, lowered
from gimbalmq.spark.option_values import (
    count_option,
    nameservers_option,
    namespace_option,
    reach_option,
)
from gimbalmq.spark.options import DEFAULT_GROUP
from gimbalmq.transport.reach import PLAIN, Reach
from gimbalmq.wire.names import RETRY_PREFIX, Namespace, check_group, check_topic

__all__ = ["Selector", "WriteOptions", "check_target", "parse_write_options"]

#: Rows of one task without an acknowledgement, when the option does not say.
_IN_FLIGHT: Final = 4096
_WRITE: Final = (
    "nameserver",
    "topic",
    "group",
    "selector",
    "maxInFlight",
    "maxRowsPerSecond",
    "idColumn",
)
#: What only reads know.
_READ_ONLY: Final = tuple(name for name in READ_NAMES if name not in _WRITE)


class Selector(enum.Enum):
    """How a row finds its queue."""

    #: The queues in turn.
    ROUND_ROBIN = "roundRobin"
    #: By Java's hash of the row's key, so that rows with equal keys keep their order.
    KEY = "key"
    #: In turn, keeping away from slow and failing brokers for a while.
    FAULT_TOLERANT = "faultTolerant"


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a write, understood and checked. Picklable: tasks carry it."""

    nameservers: tuple[str, ...]
    #: Where all rows go; None when a column says it.
    topic: str | None
    group: str
    #: None: by key when the frame has sharding keys, else in turn.
    selector: Selector | None
    in_flight_max: int
    #: What one task writes at most in a second; None: as fast as it goes.
    rows_per_s: int | None
    id_column: str | None
    #: Keys and TLS; the secret is left out of its text form.
    reach: Reach = PLAIN
    #: What topics and the group are prefixed with on their way out.
    namespace: Namespace = Namespace()


def parse_write_options(
    options: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> WriteOptions:
    """Read the options of a write; `environment` replaces that of the process.

    >>> options = parse_write_options({"nameserver": "127.0.0.1:9876", "selector": "key"})
    >>> options.selector, options.topic, options.in_flight_max
    (<Selector.KEY: 'key'>, None, 4096)

    Raises:
        ConfigurationError: naming the option that cannot be used.
    """
    check_names(options)
    given = lowered(options)
    for name in _READ_ONLY:
        if name.lower() in given:
            raise ConfigurationError(
                f"option '{name}' is for reads: leave it out of a write, which knows "
                f"{', '.join(_WRITE)}"
            )
    id_column = given.get("idcolumn")
    if id_column is not None and not id_column:
        raise ConfigurationError("option 'idColumn' is empty: name a column, or leave it out")
    return WriteOptions(
        nameservers=nameservers_option(given, environment),
        topic=_topic(given.get("topic")),
        group=_group(given.get("group")),
        selector=_selector(given.get("selector")),
        in_flight_max=count_option(given, "maxInFlight") or _IN_FLIGHT,
        rows_per_s=count_option(given, "maxRowsPerSecond"),
        id_column=id_column,
        reach=reach_option(given),
        namespace=namespace_option(given),
    )


def check_target(topic: str) -> str:
    """Refuse a topic that rows cannot be written to."""
    check_topic(topic)
    if topic.startswith(RETRY_PREFIX):
        raise ConfigurationError(
            f"topic '{topic}' is the retry topic of a group, which brokers fill: write to another"
        )
    return topic


def _topic(text: str | None) -> str | None:
    if text is None:
        return None
    if "," in text:
        raise ConfigurationError(
            f"option 'topic' is '{text}', but a write has one topic: name one, or leave it out "
            "and add a column 'topic'"
        )
    try:
        return check_target(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"option 'topic': {error}") from error


def _group(text: str | None) -> str:
    try:
        return DEFAULT_GROUP if text is None else check_group(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"option 'group': {error}") from error


def _selector(text: str | None) -> Selector | None:
    if text is None:
        return None
    for selector in Selector:
        if selector.value.lower() == text.lower():
            return selector
    known = ", ".join(selector.value for selector in Selector)
    raise ConfigurationError(f"option 'selector' is '{text}': write one of {known}")
