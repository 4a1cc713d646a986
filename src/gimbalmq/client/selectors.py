"""Ready-made choices of a queue, for `send(..., selector=...)`.

A selector is any function of the topic's queues and the message that returns one of the queues.
The queues come in the order of the publish list: by broker name, then by number.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import TypeAlias

from gimbalmq.core.selection import queue_by_key
from gimbalmq.model.message import Message
from gimbalmq.model.queue import MessageQueue

__all__ = ["QueueSelector", "by_hash", "by_random", "by_round_robin"]

#: Picks one of the queues for a message.
QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def by_hash(key: str | int) -> QueueSelector:
    """The queue that Java's `SelectMessageQueueByHash` picks for the key.

    The same as a message's `sharding_key`, without writing the key into the message.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(8)]
    >>> by_hash("order-1")(queues, Message("orders", b"x")).queue_id
    6
    """
    return lambda queues, _message: queue_by_key(queues, key)


def by_random(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    """Any queue, each as likely as the others."""
    return secrets.choice(queues)


def by_round_robin(start: int = 0) -> QueueSelector:
    """A walk of its own over the queues, shared by all threads that use this selector.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    >>> walk = by_round_robin()
    >>> [walk(queues, Message("orders", b"x")).queue_id for _ in range(3)]
    [0, 1, 0]
    """
    turns = itertools.count(start)
    return lambda queues, _message: queues[next(turns) % len(queues)]
