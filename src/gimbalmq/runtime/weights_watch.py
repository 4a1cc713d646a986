"""Keeps a member's published weights fresh: reads them before it joins, then looks again.

Decides when to look. Which weights count is the flow's business, what follows from them is the
machine's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from gimbalmq.core.consumer.events import WeightsRead
from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.weights import PublishedWeights, read_weights
from gimbalmq.model.queue import parse_queue
from gimbalmq.runtime.driver import Timer
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.wire.names import Namespace

__all__ = ["WeightsWatch"]

_log = logging.getLogger("gimbalmq.consumer")


class WeightsWatch:
    """The weights of one member's topics, from one weights topic."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        weights_topic: str,
        *,
        names: Namespace,
        every_s: float,
        read: Callable[[WeightsRead], None],
        topics: Callable[[], Iterable[str]],
    ) -> None:
        """`read` is told of each change; `topics` are those that are subscribed to, on the wire."""
        self._instance = instance
        self._group = group
        self._topic = names.wire(weights_topic)
        self._names = names
        self._every_s = every_s
        self._read = read
        self._topics = topics
        self._known = PublishedWeights()
        self._told: WeightsRead | None = None
        self._timer: Timer | None = None
        self._stopped = False

    def first(self) -> Flow[None]:
        """Read what is published, before joining.

        Raises:
            TransportError, BrokerError, ProtocolError: it cannot be read; a member that does not
                know the weights must not join, because it would compute other shares.
        """
        self._take((yield from self._look()))

    def go_on(self) -> None:
        """Look again from time to time, until `stop`."""
        if not self._stopped:
            self._timer = self._instance.driver.call_later(self._every_s, self._again)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> Flow[PublishedWeights]:
        return read_weights(
            self._instance.nameservers,
            self._group,
            self._topic,
            self._known,
            self._instance.settings.mq_client_api_timeout_s,
        )

    def _again(self) -> None:
        def looked(result: PublishedWeights | GimbalError) -> None:
            if self._stopped:
                return
            if isinstance(result, GimbalError):
                self._instance.warn(
                    f"weights {self._topic}",
                    f"group {self._group}: published weights cannot be read ({result}); going on "
                    "with those of before",
                )
            else:
                self._take(result)
            self.go_on()

        self._instance.driver.spawn(self._look(), looked)

    def _take(self, result: PublishedWeights) -> None:
        self._known = result
        for text in result.unusable:
            self._instance.warn(f"weights {text}", f"{text}; these weights are passed over")
        weights: dict[str, float] = {}
        versions: dict[str, int] = {}
        for topic in self._topics():
            name = self._names.user(topic)
            version = result.version(name)
            if version is not None:
                versions[topic] = version
            for path, weight in result.weights(name).items():
                weights[self._names.wire_queue(parse_queue(path)).path] = weight
        news = WeightsRead(weights, versions)
        if news != self._told:
            self._told = news
            told = ", ".join(f"{topic} {version}" for topic, version in sorted(versions.items()))
            _log.info("group %s: weights by version: %s", self._group, told or "none published")
            self._read(news)
