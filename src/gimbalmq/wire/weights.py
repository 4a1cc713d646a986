"""Queue weights as bytes: the JSON document that is the body of one message."""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.queue import parse_queue
from gimbalmq.model.weights import QueueWeights

__all__ = ["decode_weights", "encode_weights"]

_decode: Final = msgspec.json.Decoder(QueueWeights).decode


def encode_weights(document: QueueWeights) -> bytes:
    """The body of the message."""
    return msgspec.json.encode(document)


def decode_weights(body: bytes) -> QueueWeights:
    """Read the body of a message.

    Raises:
        ProtocolError: it is no such document, or names queues of another topic.
    """
    try:
        document = _decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not a document of queue weights: {error}") from error
    for path in document.weights:
        try:
            queue = parse_queue(path)
        except ConfigurationError as error:
            raise ProtocolError(f"weights of topic '{document.topic}': {error}") from error
        if queue.topic != document.topic:
            raise ProtocolError(
                f"weights of topic '{document.topic}' name {path}, a queue of another topic"
            )
    return document
