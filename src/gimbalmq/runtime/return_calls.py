"""Carries out what becomes of a message that failed: back to its broker, or sent anew.

A send-back that its broker does not take is made up for by sending the message to the group's
retry topic, on whichever broker takes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Final

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.errors import GimbalError
from gimbalmq.flows.dead_letter import dead_letter_request, give_back, retry_request
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.pull_calls import PullSettings
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import send_back_request
from gimbalmq.wire.names import retry_topic, with_namespace
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["ReturnCalls"]

_TIMEOUT_S: Final = 5.0


class ReturnCalls:
    """The failed messages of one group's member; answers are `SentBack` events."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ConsumerSettings,
        pulls: PullSettings,
        dispatch: Callable[[ev.Event], None],
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._max_attempts = pulls.max_reconsume_times
        self._dispatch = dispatch

    def send_back(self, effect: fx.SendBack) -> None:
        """Have the broker deliver a message again later."""
        message = effect.batch.messages[effect.position]
        request = send_back_request(
            group=self._settings.group,
            broker=effect.queue.broker,
            physical_offset=message.physical_offset,
            delay_level=effect.delay_level,
            topic=with_namespace(message.namespace, message.topic),
            message_id=message.message_id,
            max_reconsume_times=self._max_attempts,
        )
        self._give(effect, request, tuple(self._anew(effect, message)))

    def bury(self, effect: fx.Bury) -> None:
        """Have the broker move a message to the dead letters."""
        message = effect.batch.messages[effect.position]
        group, broker = self._settings.group, effect.queue.broker
        self._give(effect, dead_letter_request(group, broker, message), ())

    def _anew(self, effect: fx.SendBack, message: ReceivedMessage) -> Iterator[tuple[str, Command]]:
        """Requests that do the same as a send-back, with where to send each; other brokers first."""
        group = self._settings.group
        route = self._instance.routes.route(retry_topic(group))
        if route is None or self._settings.locking:
            # A 5.x broker takes whatever a group with locks sends to its retry topic for something
            # that an ordered consumer gave up, and buries it.
            return
        queues = {queue.broker: queue for queue in reversed(route.publish_queues())}
        for queue in sorted(queues.values(), key=lambda one: one.broker == effect.queue.broker):
            master = self._instance.routes.master(queue)
            if master is None:
                continue
            if effect.delay_level < 0:
                yield master, dead_letter_request(group, queue.broker, message)
            else:
                yield (
                    master,
                    retry_request(
                        queue,
                        message,
                        delay_level=effect.delay_level,
                        max_attempts=self._max_attempts,
                    ),
                )

    def _give(
        self,
        effect: fx.SendBack | fx.Bury,
        request: Command,
        anew: tuple[tuple[str, Command], ...],
    ) -> None:
        master = self._instance.routes.master(effect.queue)
        first = () if master is None else ((master, request),)
        flow = give_back(effect.queue, (*first, *anew), _TIMEOUT_S)
        self._instance.driver.spawn(flow, functools.partial(self._given, effect))

    def _given(self, effect: fx.SendBack | fx.Bury, result: GimbalError | None) -> None:
        self._dispatch(
            ev.SentBack(
                effect.queue,
                effect.epoch,
                effect.batch,
                effect.position,
                ok=result is None,
                reason="" if result is None else str(result),
            )
        )
