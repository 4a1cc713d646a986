"""Names of topics and groups: what is allowed, what is reserved, and what is derived.

Retry and dead-letter topics are named after the group; a namespace is a prefix that clients add
and strip (`ns%topic`), and that system names never get.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.queue import MessageQueue

__all__ = [
    "DLQ_PREFIX",
    "GROUP_CHARS_MAX",
    "RETRY_PREFIX",
    "SEND_FORBIDDEN_TOPICS",
    "SYSTEM_TOPICS",
    "TEMPLATE_TOPIC",
    "TOPIC_CHARS_MAX",
    "Namespace",
    "check_group",
    "check_topic",
    "dlq_topic",
    "is_group",
    "is_stored_topic",
    "is_system_name",
    "is_system_topic",
    "is_topic",
    "namespace_of",
    "normal_topic",
    "pop_retry_topic",
    "reply_topic",
    "retry_topic",
    "with_namespace",
    "with_namespace_and_retry",
    "without_namespace",
]

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)
#: Template from which brokers create unknown topics.
TEMPLATE_TOPIC: Final = "TBW102"

TOPIC_CHARS_MAX: Final = 127
#: Since 5.1 retry and dead-letter topics may be longer, as they hold a group's name.
_DERIVED_TOPIC_CHARS_MAX: Final = 255
#: 5.x; 4.9 allows 255, but such a group could not move to 5.x.
GROUP_CHARS_MAX: Final = 120

_allowed: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch

#: Topics that clients may not send to (the last two exist since 5.5).
SEND_FORBIDDEN_TOPICS: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }
)
SYSTEM_TOPICS: Final = SEND_FORBIDDEN_TOPICS | {
    TEMPLATE_TOPIC,
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
}
_SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def is_topic(name: object) -> bool:
    """Whether a client may use this topic name."""
    return isinstance(name, str) and len(name) <= TOPIC_CHARS_MAX and _allowed(name) is not None


def is_stored_topic(name: str) -> bool:
    """Whether a broker may hold this topic: derived names may be longer."""
    limit = _DERIVED_TOPIC_CHARS_MAX if name.startswith(_PREFIXES) else TOPIC_CHARS_MAX
    return len(name) <= limit and _allowed(name) is not None


def is_group(name: object, chars_max: int = GROUP_CHARS_MAX) -> bool:
    """Whether this group name is allowed."""
    return isinstance(name, str) and len(name) <= chars_max and _allowed(name) is not None


def is_system_topic(name: str) -> bool:
    """Whether the topic belongs to RocketMQ itself."""
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_TOPIC_PREFIX)


def check_topic(name: str) -> str:
    """The name, if a client may use it.

    >>> check_topic("orders")
    'orders'
    """
    if not is_topic(name):
        raise ConfigurationError(
            f"{name!r} is no topic name: use 1 to {TOPIC_CHARS_MAX} of the characters "
            "a-z A-Z 0-9 _ - % |"
        )
    return name


def check_group(name: str) -> str:
    """The name, if it is allowed for a group.

    >>> check_group("billing")
    'billing'
    """
    if not is_group(name):
        raise ConfigurationError(
            f"{name!r} is no group name: use 1 to {GROUP_CHARS_MAX} of the characters "
            "a-z A-Z 0-9 _ - % |"
        )
    return name


def retry_topic(group: str) -> str:
    """Topic through which the group's failed messages come back.

    >>> retry_topic("billing")
    '%RETRY%billing'
    """
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Topic of messages that the group has given up on."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Topic in which a cluster keeps replies."""
    return f"{cluster}_REPLY_TOPIC"


def pop_retry_topic(topic: str, group: str, *, second_form: bool = False) -> str:
    """Retry topic of a group that pops; the second form is off by default on brokers."""
    return f"{RETRY_PREFIX}{group}{'+' if second_form else '_'}{topic}"


def normal_topic(name: str, group: str) -> str:
    """The topic behind a pop retry topic of either form; other names are returned as they are."""
    for separator in "+_":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def _split(resource: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource


def is_system_name(resource: str) -> bool:
    """Whether a topic or group belongs to RocketMQ itself, and to no namespace."""
    return is_system_topic(resource) or resource.startswith(_SYSTEM_GROUP_PREFIX)


def with_namespace(namespace: str | None, resource: str) -> str:
    """A topic or group name inside a namespace; system names and prefixed ones stay.

    >>> with_namespace("shop", "%RETRY%billing")
    '%RETRY%shop%billing'
    """
    prefix, name = _split(resource)
    if not namespace or not name or is_system_name(resource):
        return resource
    if name.startswith(f"{namespace}%"):
        return resource
    return f"{prefix}{namespace}%{name}"


def with_namespace_and_retry(namespace: str | None, group: str) -> str | None:
    """Retry topic of a group in a namespace; None for no group, as in Java."""
    return RETRY_PREFIX + with_namespace(namespace, group) if group else None


def without_namespace(resource: str, namespace: str | None = None) -> str:
    """The name without its namespace: any when none is given, else that one only.

    >>> without_namespace("%RETRY%shop%billing")
    '%RETRY%billing'
    """
    if is_system_name(resource):
        return resource
    prefix, name = _split(resource)
    if namespace:
        return prefix + name.removeprefix(f"{namespace}%")
    before, separator, after = name.partition("%")
    return prefix + after if separator and before else resource


def namespace_of(resource: str) -> str:
    """The namespace of a name, empty when it has none.

    >>> namespace_of("shop%orders")
    'shop'
    """
    if is_system_name(resource):
        return ""
    before, separator, _ = _split(resource)[1].partition("%")
    return before if separator else ""


class Namespace(msgspec.Struct, frozen=True):
    """Both views of names: what the user calls things, and what they are called on the wire.

    Without a name both are the same.

    >>> shop = Namespace("shop")
    >>> shop.wire("orders"), shop.user("shop%orders"), shop.has("orders")
    ('shop%orders', 'orders', False)
    """

    name: str | None = None

    def wire(self, resource: str) -> str:
        """A topic or group as brokers know it."""
        return resource if self.name is None else with_namespace(self.name, resource)

    def user(self, resource: str) -> str:
        """A topic or group as the user knows it."""
        return resource if self.name is None else without_namespace(resource, self.name)

    def has(self, resource: str) -> bool:
        """Whether a topic or group of the wire is in this namespace; without one all are."""
        return self.name is None or namespace_of(resource) == self.name

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as brokers know it."""
        if not isinstance(queue, MessageQueue):
            raise ConfigurationError(
                f"{queue!r} is no queue: give a MessageQueue, such as those that assignment() and "
                "queues() of a consumer return"
            )
        if self.name is None:
            return queue
        return MessageQueue(self.wire(queue.topic), queue.broker, queue.queue_id)

    def user_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the user knows it."""
        if self.name is None:
            return queue
        return MessageQueue(self.user(queue.topic), queue.broker, queue.queue_id)

    def user_queues(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """Queues as the user knows them."""
        return tuple(map(self.user_queue, queues))
