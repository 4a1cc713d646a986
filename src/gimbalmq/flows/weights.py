"""Reading published queue weights: which document of which topic counts now.

The weights topic has one queue, so its order is the same for everyone: of the documents that it
still stores, the last one of each topic counts. A document that cannot be used counts for nobody.
What retention has removed counts no more, also for those who have read it: otherwise a member that
came later would use other weights than one that was there.

A topic may be deleted and made again under its name, and have as many documents as before. So each
look begins with the last document that was read: where another one stands in its place, everything
is read anew. So it is when the queue begins at an earlier offset than before.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.core.allocation.weighted import check_weights
from gimbalmq.errors import (
    AllocationError,
    BrokerError,
    ProtocolError,
    TopicNotFoundError,
    TransportError,
)
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.offset import min_offset
from gimbalmq.flows.pull import pull
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.model.weights import QueueWeights
from gimbalmq.wire.received import PullResult, ReceivedMessage
from gimbalmq.wire.subscription import parse_tags
from gimbalmq.wire.weights import decode_weights

__all__ = ["Mark", "PublishedWeights", "Stored", "read_weights"]

#: Documents of one pull, and pulls of one look: more wait for the next look.
_PULL_DOCUMENTS: Final = 32
_PULLS_MAX: Final = 1000


class Stored(msgspec.Struct, frozen=True):
    """A document, and where it stands in the weights topic."""

    offset: int
    document: QueueWeights


class Mark(msgspec.Struct, frozen=True):
    """By what a stored message is known again: no other one has the same place and time."""

    offset: int
    physical_offset: int
    stored_ms: int


class PublishedWeights(msgspec.Struct, frozen=True):
    """What is known of a weights topic; `documents` by the topic that they weigh.

    `queue` is None while the topic does not exist. `last` is the message before `position`, None
    when none was read or it is not stored any more. `minimum` is the first offset that was stored
    at the last look: it only grows while a topic lives. `unusable` says what is wrong with documents
    that were passed over in the last look.
    """

    queue: MessageQueue | None = None
    address: str = ""
    position: int = 0
    last: Mark | None = None
    minimum: int = 0
    documents: dict[str, Stored] = msgspec.field(default_factory=dict)
    unusable: tuple[str, ...] = ()

    def weights(self, topic: str) -> dict[str, float]:
        """The weights of a topic's queues by path; empty when none are published."""
        stored = self.documents.get(topic)
        return {} if stored is None else stored.document.weights

    def version(self, topic: str) -> int | None:
        """The version that counts; None when none is published."""
        stored = self.documents.get(topic)
        return None if stored is None else stored.document.version


def read_weights(
    nameservers: NameServers,
    group: str,
    topic: str,
    known: PublishedWeights,
    timeout_s: float,
) -> Flow[PublishedWeights]:
    """Read what is new in a weights topic; one request when nothing is.

    Args:
        nameservers: Where to ask for the route.
        group: In whose name to read; nothing is committed.
        topic: The weights topic. One that does not exist has no documents.
        known: The result of the last look; `PublishedWeights()` for the first one.
        timeout_s: For each question about the route.

    Raises:
        TransportError, BrokerError: the topic cannot be read now.
        ProtocolError: the topic has several queues, so that its documents have no order.
    """
    if known.queue is not None:
        try:
            return (yield from _read(group, known))
        except (TransportError, BrokerError):
            pass  # it may have moved, or be gone
    try:
        route = yield from fetch_route(nameservers, topic, timeout_s)
    except TopicNotFoundError:
        return PublishedWeights()
    queues = sorted_queues(route.subscribe_queues())
    addresses = {one.name: one.any_address for one in route.brokers}
    if len(queues) != 1:
        raise ProtocolError(
            f"topic '{topic}' has {len(queues)} queues, so the weights in it have no order: "
            "create it with one queue"
        )
    address = addresses.get(queues[0].broker)
    if address is None:
        raise TransportError(f"the broker of {queues[0].path} has no address now")
    if known.queue != queues[0]:
        known = PublishedWeights(queues[0])
    return (yield from _read(group, msgspec.structs.replace(known, address=address)))


def _read(group: str, known: PublishedWeights) -> Flow[PublishedWeights]:
    assert known.queue is not None
    everything = parse_tags(known.queue.topic, "*", 0)
    state = msgspec.structs.replace(known, unusable=())
    for _ in range(_PULLS_MAX):
        answer = yield from pull(
            state.address,
            group,
            known.queue,
            state.position if state.last is None else state.last.offset,
            subscription=everything,
            max_messages=_PULL_DOCUMENTS,
        )
        if _made_again(state, answer):
            first = yield from min_offset(state.address, known.queue)
            state = PublishedWeights(known.queue, state.address, first)
            continue
        before = state
        state = _folded(state, answer)
        if state.position >= answer.maximum or state == before:
            break
    return state


def _made_again(state: PublishedWeights, answer: PullResult) -> bool:
    """Whether what was read is of another topic of the same name, which is deleted."""
    if answer.maximum < state.position or answer.minimum < state.minimum:
        return True
    if state.last is None or state.last.offset < answer.minimum:
        return False  # nothing to compare; and what is not stored any more counts no more
    return not answer.messages or _mark(answer.messages[0]) != state.last


def _mark(message: ReceivedMessage) -> Mark:
    return Mark(message.queue_offset, message.physical_offset, message.store_timestamp_ms)


def _folded(state: PublishedWeights, answer: PullResult) -> PublishedWeights:
    documents = {
        topic: one for topic, one in state.documents.items() if one.offset >= answer.minimum
    }
    unusable = list(state.unusable)
    last = None if state.last is None or state.last.offset < answer.minimum else state.last
    for message in answer.messages:
        if message.queue_offset < state.position:
            continue  # read before, and only compared
        last = _mark(message)
        try:
            document = decode_weights(message.body)
            check_weights(document.weights)
        except (ProtocolError, AllocationError) as error:
            unusable.append(f"{message.queue.path}@{message.queue_offset}: {error}")
            continue
        documents[document.topic] = Stored(message.queue_offset, document)
    return msgspec.structs.replace(
        state,
        position=max(answer.next_offset, state.position),
        last=last,
        minimum=answer.minimum,
        documents=documents,
        unusable=tuple(unusable),
    )
