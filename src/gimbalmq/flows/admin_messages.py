"""Finding stored messages: by the place in a broker's log, by the sender's id, by key.

Brokers find keys by a hash, so what they return is checked again. Both kinds of id look alike;
an id is an offset id when it holds the address of a broker of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gimbalmq.errors import ConfigurationError, OffsetError, TopicNotFoundError
from gimbalmq.flows.admin import broker_address, fetch_cluster, list_topics
from gimbalmq.flows.effects import Flow, broker_error, call
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.wire.bodies import ClusterInfo
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.headers import query_message_request, view_message_request
from gimbalmq.wire.ids import OffsetId, parse_offset_id
from gimbalmq.wire.record import ReceivedMessage, decode_records

__all__ = ["find_by_id", "find_by_key"]

_END_OF_TIME_MS: Final = (1 << 63) - 1


def find_by_id(
    nameservers: NameServers, message_id: str, timeout_s: float, *, topic: str | None = None
) -> Flow[ReceivedMessage]:
    """The message with this offset id or unique id.

    Brokers look up a unique id within a topic only; without `topic` every topic is asked.

    Raises:
        ConfigurationError: this is no message id.
        OffsetError: there is no such message, or no longer.
    """
    place = parse_offset_id(message_id)
    info = yield from fetch_cluster(nameservers, timeout_s)
    broker = _broker_at(info, place)
    if broker is not None:
        return (yield from _view(broker, place, message_id, timeout_s))
    wanted = message_id.upper()
    topics = (topic,) if topic is not None else (yield from list_topics(nameservers, timeout_s))
    for one in topics:
        try:
            found = yield from _query(nameservers, one, wanted, timeout_s, unique=True)
        except TopicNotFoundError:
            if topic is not None:
                raise
            continue  # removed since the topics were listed
        if found:
            return found[-1]
    where = f"topic '{topic}'" if topic is not None else f"the {len(topics)} topics of the cluster"
    raise OffsetError(
        f"no message with id {message_id} is stored in {where}: it was never sent there, is too "
        "old, or was stored this moment and is not indexed yet"
    )


def find_by_key(
    nameservers: NameServers, topic: str, key: str, timeout_s: float
) -> Flow[tuple[ReceivedMessage, ...]]:
    """The messages of a topic that have this key, the oldest first; brokers return the newest 32.

    Raises:
        TopicNotFoundError: there is no such topic.
    """
    if not key or any(character.isspace() for character in key):
        raise ConfigurationError(f"'{key}' is no key: keys are not empty and have no white space")
    return (yield from _query(nameservers, topic, key, timeout_s, unique=False))


def _broker_at(info: ClusterInfo, place: OffsetId) -> tuple[str, str] | None:
    address = f"{place.host}:{place.port}"
    return next(
        (
            (name, address)
            for name, brokers in info.brokers.items()
            if address in brokers.addresses.values()
        ),
        None,
    )


def _view(
    broker: tuple[str, str], place: OffsetId, message_id: str, timeout_s: float
) -> Flow[ReceivedMessage]:
    name, address = broker
    request = view_message_request(name, place.offset)
    answer = yield from call(address, request, timeout_s)
    # A broker answers 1 (any failure) when there is no message at that place.
    if answer.code == ResponseCode.SYSTEM_ERROR:
        raise OffsetError(
            f"broker '{name}' has no message {message_id}: it is deleted by now, or the id is wrong"
        )
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(address, request, answer)
    messages = decode_records(answer.body, name)
    if not messages:
        raise OffsetError(f"broker '{name}' has no message {message_id}: the id is wrong")
    return messages[0]


def _query(
    nameservers: NameServers, topic: str, key: str, timeout_s: float, *, unique: bool
) -> Flow[tuple[ReceivedMessage, ...]]:
    route = yield from fetch_route(nameservers, topic, timeout_s)
    matches: Callable[[ReceivedMessage], bool]
    if unique:
        matches = lambda message: message.message_id.upper() == key  # noqa: E731 - one of two rules
    else:
        matches = lambda message: key in message.keys  # noqa: E731
    found: list[ReceivedMessage] = []
    for brokers in sorted(route.brokers, key=lambda one: one.name):
        address = broker_address(brokers)
        request = query_message_request(
            broker=brokers.name,
            topic=topic,
            key=key,
            begin_ms=0,
            end_ms=_END_OF_TIME_MS,
            unique=unique,
        )
        answer = yield from call(address, request, timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            continue
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(address, request, answer)
        found += filter(matches, decode_records(answer.body, brokers.name))
    return tuple(sorted(found, key=lambda one: (one.store_timestamp_ms, one.queue_offset)))
