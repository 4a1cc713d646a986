"""A producer in virtual time: the real preparation and sending of messages, key by key.

Decides which queue a key goes to, and that a message whose sending failed is sent again until a
broker has it. Must not know what is made of the messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from gimbalmq.errors import GimbalError, SendError
from gimbalmq.flows.effects import Flow, now, sleep
from gimbalmq.flows.outgoing import Outgoing, SendSettings, prepare
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.flows.send import Attempt, send
from gimbalmq.model.message import Message, SendResult
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.testing.sim.driver import SimDriver
from gimbalmq.testing.sim.history import Kind
from gimbalmq.testing.sim.network import Network
from gimbalmq.testing.sim.world import Clock, Process
from gimbalmq.wire.headers import send_request

__all__ = ["SimProducer"]

_TIMEOUT_S: Final = 3.0
_PAUSE_S: Final = 0.5
_ATTEMPTS_MAX: Final = 100


class SimProducer:
    """Sends numbered messages with keys until each is acknowledged, one after the other per key."""

    def __init__(
        self, topic: str, nameservers: tuple[str, ...], clock: Clock, network: Network
    ) -> None:
        self.process = Process("producer", clock)
        self._topic = topic
        self._nameservers = NameServers(nameservers)
        self._driver = SimDriver(self.process, network, None)
        self.unsettled = 0

    def send(self, key: int, bodies: list[str], pause_s: Callable[[], float]) -> None:
        """Send messages of one key to one queue, in order."""
        self.unsettled += 1
        self._driver.spawn(self._sending(key, bodies, pause_s), self._done)

    def _done(self, error: GimbalError | None) -> None:
        assert error is None, error
        self.unsettled -= 1

    def _sending(self, key: int, bodies: list[str], pause_s: Callable[[], float]) -> Flow[None]:
        queues = yield from self._all_queues()
        queue, address = queues[key % len(queues)]
        for number, body in enumerate(bodies):
            yield from sleep(pause_s())
            message = Message(self._topic, body.encode(), sharding_key=f"k{key}")
            outgoing = prepare(message, f"{key:08X}{number:08X}", SendSettings())
            result = yield from self._until_stored(queue, address, outgoing)
            self.process.world.note(
                Kind.SENT,
                "producer",
                queue=result.queue.path,
                offset=result.queue_offset,
                text=body,
            )

    def _until_stored(
        self, queue: MessageQueue, address: str, outgoing: Outgoing
    ) -> Flow[SendResult]:
        for _ in range(_ATTEMPTS_MAX):
            born_ms = (yield from now()).wall_ms
            attempt = functools.partial(_attempt, queue, address, outgoing, born_ms)
            try:
                # Once: as for a queue that its caller chose.
                return (
                    yield from send(
                        attempt,
                        message_id=outgoing.message_id,
                        attempts_max=1,
                        timeout_s=_TIMEOUT_S,
                    )
                )
            except SendError:
                yield from sleep(_PAUSE_S)
        raise AssertionError(f"{queue.path} never took a message")

    def _all_queues(self) -> Flow[list[tuple[MessageQueue, str]]]:
        for _ in range(_ATTEMPTS_MAX):
            try:
                route = yield from fetch_route(self._nameservers, self._topic, _TIMEOUT_S)
            except GimbalError:
                yield from sleep(_PAUSE_S)
                continue
            addresses = {one.name: one.any_address for one in route.brokers}
            return [
                (queue, address)
                for queue in sorted_queues(route.subscribe_queues())
                if (address := addresses.get(queue.broker)) is not None
            ]
        raise AssertionError("no name server ever answered")


def _attempt(
    queue: MessageQueue,
    address: str,
    outgoing: Outgoing,
    born_ms: int,
    _failed_broker: str | None,
) -> Attempt:
    request = send_request(
        group="shop",
        queue=queue,
        body=outgoing.body,
        properties=outgoing.properties,
        sys_flag=outgoing.sys_flag,
        born_timestamp_ms=born_ms,
    )
    return Attempt(queue, address, request)
