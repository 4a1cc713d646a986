"""Answers to what brokers and tools ask a member of a group.

An operator may have offsets reset, ask what the member is doing, with stacks if need be, ask it why
a queue is where it is, and have it consume one message there and then, whatever queue it is from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gimbalmq.core.consumer.events import Event, OffsetsReset
from gimbalmq.core.consumer.ground import Ground
from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.queue import parse_queue
from gimbalmq.model.sharing import LockTimes, MemberAnswer, Sharing
from gimbalmq.runtime.consumer_parts import Machine
from gimbalmq.runtime.inspection import consume_directly, running_info
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.listening import Listening
from gimbalmq.runtime.pull_calls import PullSettings
from gimbalmq.wire.bodies import (
    ConsumeResult,
    ConsumerStatus,
    RunningInfo,
    decode_reset_offsets,
    encode_consume_result,
    encode_consumer_status,
    encode_running_info,
)
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.sharing import (
    ANSWER_PROPERTY,
    QUEUE_FIELD,
    WITHOUT_FIELD,
    decode_without,
    encode_answer,
)
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["MemberAnswers"]


class MemberAnswers:
    """Speaks for one member; what changes something goes to `dispatch`."""

    def __init__(
        self,
        instance: ClientInstance,
        machine: Machine,
        subscriptions: Mapping[str, SubscriptionData],
        pulls: PullSettings,
        dispatch: Callable[[Event], None],
    ) -> None:
        self._instance = instance
        self._machine = machine
        self._subscriptions = subscriptions
        self._pulls = pulls
        self._dispatch = dispatch
        self._listening: Listening | None = None
        self._worker_count = 0
        #: When it all began.
        self.started_ms = 0

    def attach(self, listening: Listening | None, worker_count: int) -> None:
        """Say which listeners there are, if any, and how many can run at a time."""
        self._listening = listening
        self._worker_count = worker_count

    def answer(self, request: Command, reply: Callable[[Command], None]) -> bool:
        """Answer a request, now or later; False when it is none for a member."""
        match request.code:
            case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                self._dispatch(OffsetsReset(decode_reset_offsets(request.body)))
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                self._tell_running_info(request, reply)
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                reply(self._status(request))
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                threading.Thread(
                    target=self._consume_directly, args=(request, reply), daemon=True
                ).start()
            case _:
                return False
        return True

    def _tell_running_info(self, request: Command, reply: Callable[[Command], None]) -> None:
        info = self._running_info(request)
        if QUEUE_FIELD not in request.fields:
            reply(response_to(request, body=encode_running_info(info)))
            return
        ground = self._machine.ground(self._instance.driver.now().at_s)

        def explain() -> None:
            said = encode_answer(_answer(ground, request))
            full = replace(info, properties={**info.properties, ANSWER_PROPERTY: said})
            answer = response_to(request, body=encode_running_info(full))
            self._instance.driver.post(lambda: reply(answer))

        # A large group takes seconds to compute; nothing else must wait for that.
        threading.Thread(target=explain, daemon=True).start()

    def _running_info(self, request: Command) -> RunningInfo:
        now = self._instance.driver.now()
        return running_info(
            self._machine.held,
            self._machine.settings,
            self._subscriptions.values(),
            nameservers=self._instance.nameservers.addresses,
            consume_type=self._pulls.consume_type,
            started_ms=self.started_ms,
            workers=self._worker_count,
            now=now,
            absent=self._machine.absent(now.at_s),
            sharing=self._sharing(now.at_s),
            with_stacks=request.fields.get("jstackEnable") == "true",
        )

    def _sharing(self, now_s: float) -> Sharing | None:
        settings = self._machine.settings
        if settings.broadcasting:
            return None  # nothing is shared out
        return replace(
            self._machine.ground(now_s).sharing(),
            manual=settings.manual,
            passive=self._machine.passive,
            locks=LockTimes(settings.lock_trust_s, settings.take_over_grace_s)
            if settings.locking
            else None,
        )

    def _status(self, request: Command) -> Command:
        topic = request.fields.get("topic", "")
        offsets = {
            queue: held.process.commit_offset
            for queue, held in self._machine.held.items()
            if held.process is not None and queue.topic == topic
        }
        return response_to(request, body=encode_consumer_status(ConsumerStatus(offsets)))

    def _consume_directly(self, request: Command, reply: Callable[[Command], None]) -> None:
        ordered = self._machine.settings.ordered
        broker = request.fields.get("brokerName", "")
        try:
            if self._listening is None:
                raise ValueError("this consumer polls: it has no listener")  # noqa: TRY301
            (message,) = decode_records(request.body, broker)
            message.namespace = self._pulls.namespace
            result = consume_directly(self._listening, message, ordered=ordered)
        except (ProtocolError, ValueError) as error:
            result = ConsumeResult("CR_THROW_EXCEPTION", ordered, remark=str(error))
        answer = response_to(request, body=encode_consume_result(result))
        self._instance.driver.post(lambda: reply(answer))


def _answer(ground: Ground, request: Command) -> MemberAnswer:
    """What this member says about a queue; what it cannot read is its answer, too."""
    try:
        queue = parse_queue(request.fields[QUEUE_FIELD])
        without = decode_without(request.fields.get(WITHOUT_FIELD, "[]"))
    except (ConfigurationError, ProtocolError) as error:
        return MemberAnswer(trouble=str(error))
    return ground.answer(queue, without)
