"""Dead letters of a group: what it gave up on, and giving it another chance.

A message that is re-driven goes to the group's retry topic, so this group alone gets it again,
with its attempts counted anew. How far a group's dead letters were re-driven is kept as its
committed offset in the dead-letter topic, which no consumer uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from gimbalmq.client.admin import Admin
from gimbalmq.errors import StateError, TopicNotFoundError, TransportError
from gimbalmq.flows.dead_letter import revive_request
from gimbalmq.flows.effects import Flow, checked_call
from gimbalmq.flows.offset import store_offset
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.names import check_group, dlq_topic, retry_topic
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["DeadLetters"]


class DeadLetters:
    """The dead letters of one group, which is one of the administrator's namespace.

    with Admin("127.0.0.1:9876") as admin:
        letters = DeadLetters(admin, "billing")
        for message in letters.waiting():
            letters.redrive(message)
    """

    def __init__(self, admin: Admin, group: str) -> None:
        self.group = check_group(group)
        self._wire_group = check_group(admin.namespace.wire(group))
        self._admin = admin
        self._topic = dlq_topic(group)

    def waiting(self, *, again: bool = False) -> Iterator[ReceivedMessage]:
        """Those that were not re-driven yet, the oldest of each queue first; `again`: all stored.

        Raises:
            StateError: brokers do not let the dead-letter topic be read.
        """
        try:
            offsets = self._admin.offsets(self.group, self._topic)
        except TopicNotFoundError:
            return  # the group has never given up on a message
        if not offsets:
            raise StateError(
                f"topic '{self._topic}' may not be read (RocketMQ before 5.0 makes it so): allow "
                f"it with `gimbalmq topic create {self._topic} --queues 1`"
            )
        for message in self._admin.tail(self._topic, start_from="first", follow=False):
            # Not known: a broker has made its part of the topic just now.
            known = offsets.get(message.queue)
            done = 0 if known is None else known.committed or 0
            if again or message.queue_offset >= done:
                yield message

    def redrive(self, message: ReceivedMessage) -> None:
        """Give a message to the group again, and note that this was done."""
        target = retry_topic(self.group)
        route = self._admin.route(target)
        masters = {one.name: one.master for one in route.brokers}
        # Its own broker if that has the retry topic, else any that has.
        names = [data.broker for data in route.queues if masters.get(data.broker) is not None]
        broker = message.broker if message.broker in names else next(iter(names), None)
        address = None if broker is None else masters[broker]
        if broker is None or address is None:
            raise TransportError(
                f"no broker with topic '{target}' has a master at the moment: restart one"
            )
        request = revive_request(self._wire_group, broker, message)

        def send(_servers: NameServers, timeout_s: float) -> Flow[None]:
            yield from checked_call(address, request, timeout_s)

        self._admin.run(send)
        self._note(message)

    def _note(self, message: ReceivedMessage) -> None:
        queue = MessageQueue(self._topic, message.broker, message.queue_id)
        offsets = self._admin.offsets(self.group, self._topic)[queue]
        # Only without a gap: one that was left out before must stay in the list.
        if message.queue_offset != max(offsets.committed or 0, offsets.minimum):
            return
        brokers = self._admin.route(self._topic).broker(queue.broker)
        address = None if brokers is None else brokers.master
        if address is not None:
            stored, after = self._admin.namespace.wire_queue(queue), message.queue_offset + 1
            self._admin.run(
                lambda _servers, _limit: store_offset(address, self._wire_group, stored, after)
            )
