"""Asks name servers which topics a read is to cover, and where they are.

What goes wrong is told in the words of the options. What queues hold is found out by `lookup`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    GimbalError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.flows.effects import Flow, sleep
from gimbalmq.flows.route import NameServers, ask_nameservers, fetch_route
from gimbalmq.model.route import TopicRoute
from gimbalmq.spark.options import ReadOptions
from gimbalmq.wire.bodies import decode_topic_list
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

__all__ = ["asks_for", "find_route", "find_topics", "patiently", "unreachable"]

_T = TypeVar("_T")

_TIMEOUT_S: Final = 5.0
#: Waits between attempts of a question that may succeed later: a broker that restarts, a flood.
_RETRY_WAITS_S: Final = (0.2, 1.0)
#: More topics than this are not listed in an error text.
_LISTED_MAX: Final = 5
_NOT_SUPPORTED: Final = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def find_topics(nameservers: NameServers, options: ReadOptions) -> Flow[tuple[str, ...]]:
    """The topics to read: those named, or those that the pattern matches now."""
    if options.topic_pattern is None:
        return options.topics
    topics = yield from _list_topics(
        nameservers, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, options
    )
    # Brokers and clusters have topics of their own names, which no one means by a pattern.
    own = yield from _list_topics(nameservers, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, options)
    matching = sorted(topic for topic in topics - own if asks_for(options, topic))
    if not matching:
        space = options.namespace
        names = sorted(space.user(topic) for topic in topics - own if space.has(topic))
        there = [name for name in names if _is_meant(name, options.topic_pattern)]
        more = len(there) - _LISTED_MAX
        listed = ", ".join(there[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
        raise ConfigurationError(
            f"option 'topicPattern' is '{options.topic_pattern}' and matches none of the "
            f"cluster's topics: it must match the whole name; there are {listed or 'none'}"
        )
    return tuple(matching)


def asks_for(options: ReadOptions, topic: str) -> bool:
    """Whether the options mean this topic, be it there or not."""
    if topic == options.retry_topic:
        return True
    if options.topic_pattern is None:
        return topic in options.topics
    if not options.namespace.has(topic):
        return False
    name = options.namespace.user(topic)
    matches = re.fullmatch(options.topic_pattern, name) is not None
    return matches and _is_meant(name, options.topic_pattern)


def _is_meant(topic: str, pattern: str) -> bool:
    """Retry and dead-letter topics only when the pattern says so itself."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic.startswith(prefix):
            return pattern.startswith(prefix)
    return not is_system_topic(topic) and not topic.endswith("_REPLY_TOPIC")


def _list_topics(
    nameservers: NameServers, code: RequestCode, options: ReadOptions
) -> Flow[frozenset[str]]:
    def ask() -> Flow[Command]:
        return ask_nameservers(nameservers, lambda: Command(int(code)), _TIMEOUT_S)

    try:
        answer = yield from patiently(ask)
    except TransportError as error:
        raise unreachable(error, options) from error
    except BrokerError as error:
        raise _no_nameserver(error, options) from error
    return frozenset(decode_topic_list(answer.body))


def find_route(nameservers: NameServers, topic: str, options: ReadOptions) -> Flow[TopicRoute]:
    """The route of a topic.

    Raises:
        TopicNotFoundError: there is none.
        TransportError, ConfigurationError: no name server answers, or it is none.
    """
    try:
        return (yield from patiently(lambda: fetch_route(nameservers, topic, _TIMEOUT_S)))
    except TopicNotFoundError as error:
        raise TopicNotFoundError(
            f"option 'topic': there is no topic '{options.namespace.user(topic)}' (name server "
            f"{';'.join(options.nameservers)} has no route for {topic}): create it, or correct "
            "the name",
            code=error.code or 0,
            address=error.address,
            remark=error.remark,
        ) from error
    except TransportError as error:
        raise unreachable(error, options) from error
    except BrokerError as error:
        raise _no_nameserver(error, options) from error


def _no_nameserver(error: BrokerError, options: ReadOptions) -> GimbalError:
    """The error for a server that refuses what every name server answers, else the error itself."""
    if error.code != _NOT_SUPPORTED:
        return error
    return ConfigurationError(
        f"option 'nameserver' is '{';'.join(options.nameservers)}', which is no name server; is it "
        f"a broker's address? ({error})"
    )


def unreachable(error: TransportError, options: ReadOptions) -> TransportError:
    """The error of a call to the name servers, in the words of the options."""
    return TransportError(
        f"option 'nameserver' is '{';'.join(options.nameservers)}': {error}", address=error.address
    )


def patiently(ask: Callable[[], Flow[_T]]) -> Flow[_T]:
    """Ask; when the failure may pass, wait and ask again."""
    for wait_s in _RETRY_WAITS_S:
        try:
            return (yield from ask())
        except GimbalError as error:
            if not error.retryable:
                raise
        yield from sleep(wait_s)
    return (yield from ask())
