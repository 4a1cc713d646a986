"""Where a topic lives: broker sets, their addresses, and how many queues each has.

The rules from a route to queues differ for senders and readers (and are Java's): a sender needs
write permission and a master, and keeps the order of broker names; a reader needs only read
permission. `publish_queues` and `subscribe_queues` are those two rules.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import utf16_key
from gimbalmq.model.queue import MessageQueue

__all__ = ["MASTER_ID", "PERM_READ", "PERM_WRITE", "BrokerSet", "QueueData", "TopicRoute"]

PERM_READ: Final = 4
PERM_WRITE: Final = 2
MASTER_ID: Final = 0


class BrokerSet(msgspec.Struct, frozen=True):
    """A master and its slaves, which share one name; `addresses` maps broker id to host:port."""

    name: str
    cluster: str
    addresses: dict[int, str]

    @property
    def master(self) -> str | None:
        """Address of broker id 0, or None while the set has no master."""
        return self.addresses.get(MASTER_ID)

    @property
    def any_address(self) -> str | None:
        """The master, else the slave with the smallest id; None when no process is alive."""
        if not self.addresses:
            return None
        return self.addresses[min(self.addresses)]


class QueueData(msgspec.Struct, frozen=True):
    """How many queues of the topic one broker set has, and what may be done with them."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int


class TopicRoute(msgspec.Struct, frozen=True):
    """The name server's answer for one topic."""

    topic: str
    brokers: tuple[BrokerSet, ...]
    queues: tuple[QueueData, ...]
    #: "broker-a:4;broker-b:2" for strictly ordered topics; overrides the publish list.
    order_conf: str = ""
    #: Taken from the template: brokers make the topic with the first message, so it can be sent
    #: to, but there is nothing to read yet.
    from_template: bool = False

    def broker(self, name: str) -> BrokerSet | None:
        """The broker set of that name, or None."""
        for one in self.brokers:
            if one.name == name:
                return one
        return None

    def publish_queues(self) -> tuple[MessageQueue, ...]:
        """Queues to send to: writable, with a master, by broker name and then queue id."""
        if self.order_conf:
            return _ordered_queues(self.topic, self.order_conf)
        result: list[MessageQueue] = []
        for data in sorted(self.queues, key=lambda one: utf16_key(one.broker)):
            brokers = self.broker(data.broker)
            if data.perm & PERM_WRITE and brokers is not None and brokers.master is not None:
                result += (
                    MessageQueue(self.topic, data.broker, number)
                    for number in range(data.write_queues)
                )
        return tuple(result)

    def subscribe_queues(self) -> frozenset[MessageQueue]:
        """Queues to read from: readable; a set that lost its master still counts."""
        return frozenset(
            MessageQueue(self.topic, data.broker, number)
            for data in self.queues
            if data.perm & PERM_READ
            for number in range(data.read_queues)
        )


def _ordered_queues(topic: str, order_conf: str) -> tuple[MessageQueue, ...]:
    result: list[MessageQueue] = []
    for part in filter(None, order_conf.split(";")):
        broker, separator, count = part.rpartition(":")
        if not (separator and broker and count.isascii() and count.isdigit()):
            raise ConfigurationError(
                f"order configuration of topic '{topic}' is '{order_conf}': "
                f"'{part}' is not broker:count; correct it on the name server"
            )
        result += (MessageQueue(topic, broker, number) for number in range(int(count)))
    return tuple(result)
