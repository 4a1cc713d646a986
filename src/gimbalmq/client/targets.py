"""Where plain messages of a producer can go: each queue with its address and its written requests.

Made once per publish list, and used for every message until a new one comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gimbalmq.core.publish import PublishInfo
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.templates import SendTemplate

__all__ = ["Target", "Targets"]

#: Topics whose targets are kept; one that is gone leaves its own behind.
_TOPICS_MAX: Final = 1024


class Target(msgspec.Struct, frozen=True):
    """One queue of a publish list: where it is, and how its requests look.

    The address is empty while the queue's broker has no master.
    """

    queue: MessageQueue
    address: str
    template: SendTemplate


class Targets:
    """The targets of all topics that a producer sends to; safe to use from several threads."""

    def __init__(self, template: Callable[[MessageQueue], SendTemplate]) -> None:
        self._template = template
        #: By topic, each with the publish list that they are of.
        self._known: dict[str, tuple[PublishInfo, list[Target]]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._known

    def of(self, info: PublishInfo) -> list[Target]:
        """The targets of a publish list, in its order."""
        topic = info.route.topic
        known = self._known.get(topic)
        if known is not None and known[0] is info:
            return known[1]
        if len(self._known) >= _TOPICS_MAX:
            self._known.clear()
        targets = [
            Target(queue, info.masters.get(queue.broker, ""), self._template(queue))
            for queue in info.queues
        ]
        self._known[topic] = info, targets
        return targets
