"""Versioned queue weights: what `load-profile` publishes and the strategy WEIGHTED takes.

A document is one message in a topic with a single queue, `GIMBALMQ_WEIGHTS` by default, its key
the topic that is weighted. The last one of a key counts; versions go up by one.

    latest = latest_weights("orders", nameserver="127.0.0.1:9876")
    balance.strategy("WEIGHTED", weights=latest.weights)

Members of a group read it by themselves with `balance.strategy("WEIGHTED", weights="published")`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Unpack

from gimbalmq.client.access import AccessOptions
from gimbalmq.client.admin import Admin
from gimbalmq.client.producer import Producer
from gimbalmq.client.pull_consumer import PullConsumer
from gimbalmq.errors import ProtocolError, TopicNotFoundError
from gimbalmq.model.message import Message
from gimbalmq.model.weights import WEIGHTS_TOPIC, QueueWeights
from gimbalmq.wire.weights import decode_weights, encode_weights

__all__ = ["WEIGHTS_TOPIC", "QueueWeights", "latest_weights", "publish_weights"]

_GROUP: Final = "gimbalmq-weights"


def latest_weights(
    topic: str,
    *,
    nameserver: str | None = None,
    weights_topic: str = WEIGHTS_TOPIC,
    **access: Unpack[AccessOptions],
) -> QueueWeights | None:
    """The newest document for a topic; None when nothing was published.

    `access` are the options of every client: keys, TLS, namespace.

    Raises:
        ProtocolError: the newest message with that key is no such document.
    """
    newest: bytes | None = None
    with PullConsumer(_GROUP, nameserver=nameserver, **access) as consumer:
        try:
            queues = consumer.queues(weights_topic)
        except TopicNotFoundError:
            return None
        for queue in queues:
            offset, end = consumer.bounds(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                for message in result.messages:
                    if topic in message.keys:
                        newest = message.body
                offset = max(result.next_offset, offset + 1)
    if newest is None:
        return None
    try:
        return decode_weights(newest)
    except ProtocolError as error:
        raise ProtocolError(
            f"the newest weights of '{topic}' in topic '{weights_topic}' cannot be read: {error}; "
            "publish them again with the pipeline load-profile"
        ) from error


def publish_weights(
    topic: str,
    weights: Mapping[str, float],
    *,
    nameserver: str | None = None,
    weights_topic: str = WEIGHTS_TOPIC,
    **access: Unpack[AccessOptions],
) -> QueueWeights:
    """Publish the next version of a topic's weights."""
    before = latest_weights(topic, nameserver=nameserver, weights_topic=weights_topic, **access)
    document = QueueWeights(
        1 if before is None else before.version + 1,
        topic,
        time.time_ns() // 1_000_000,
        dict(sorted(weights.items())),
    )
    with Admin(nameserver, **access) as admin:
        if weights_topic not in admin.topics():
            broker = admin.route(topic).brokers[0].name
            admin.create_topic(weights_topic, queues=1, brokers=[broker])
    with Producer(_GROUP, nameserver=nameserver, **access) as producer:
        producer.send(Message(weights_topic, encode_weights(document), keys=[topic]))
    return document
