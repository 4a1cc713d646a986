"""Pulls of one member: to whom, with what, and what an answer means.

A broker may advise to read a queue from a slave; that is kept until the next answer, and forgotten
when it does not work. What will be asked for next may go out early, and answers that follow each
other are handed over together: see `read_ahead`.

When a topic is subscribed to with another expression, a message that it wants is not missed because
of the one before: a broker that has not heard of the new one refuses the pull, and what an earlier
pull brought or passed over is asked for again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gimbalmq.core.consumer.effects import Pull
from gimbalmq.core.consumer.events import Event, PullAnswered, PullFailed
from gimbalmq.errors import GimbalError, ProtocolError
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import MASTER_ID
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.read_ahead import Budget, EarlyPull, ReadAhead
from gimbalmq.wire.codes import PullFlag
from gimbalmq.wire.command import Command
from gimbalmq.wire.found import FoundCommand
from gimbalmq.wire.headers import PullResponse, parse_pull_response
from gimbalmq.wire.pulls import PullRequests
from gimbalmq.wire.record import ReceivedMessage, decode_records
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["PullCalls", "PullSettings"]

_STATUS: Final = {status.value: status for status in PullStatus}
_SUSPEND: Final = int(PullFlag.SUSPEND)
_COMMIT_OFFSET: Final = int(PullFlag.COMMIT_OFFSET)
_FOUND: Final = PullStatus.FOUND.value
_FOUND_STATUS: Final = PullStatus.FOUND
_MOVED: Final = PullStatus.OFFSET_ILLEGAL.value
#: Answers that say which messages match, or that none does.
_FILTERED: Final = frozenset(_STATUS) - {_MOVED}


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a push consumer pulls, with Java's names and defaults."""

    #: Push or pull, as brokers and tools see it.
    consume_type: str = "CONSUME_PASSIVELY"
    pull_batch_size: int = 32
    #: How many pulls of a member may go out before they are asked for.
    pulls_ahead: int = 64
    broker_suspend_max_time_s: float = 15.0
    consumer_timeout_when_suspend_s: float = 30.0
    max_reconsume_times: int = 16
    #: What messages leave out of the names that they show.
    namespace: str | None = None


class _QueuePulls:
    """What is known of the pulls of one acquisition of a queue, and what they have in common."""

    __slots__ = ("advised", "ahead", "requests")

    def __init__(self, ahead: ReadAhead, requests: PullRequests, advised: int) -> None:
        self.ahead = ahead
        self.requests = requests
        #: The broker id that the broker advised to read the queue from.
        self.advised = advised


class PullCalls:
    """Sends the pulls of one group's member and reads their answers."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        settings: PullSettings,
        dispatch: Callable[[Event], None],
    ) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions = subscriptions
        self._settings = settings
        self._timeout_s = settings.consumer_timeout_when_suspend_s
        self._dispatch = dispatch
        self._queues: dict[MessageQueue, _QueuePulls] = {}
        self._budget = Budget(settings.pulls_ahead)
        #: What is pulled by, by topic, and the least version of it that a broker has to know.
        self._least: dict[str, tuple[SubscriptionData, int]] = {}

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer this member's."""
        pulls = self._queues.pop(queue, None)
        if pulls is not None:
            pulls.ahead.drop()
            self._budget.share(max(len(self._queues), 1))

    def pull(self, effect: Pull) -> None:
        """Ask for messages; answered by `PullAnswered` or `PullFailed`."""
        queue = effect.queue
        pulls = self._queues.get(queue)
        if pulls is None or not pulls.ahead.fits(effect, self._subscriptions[queue.topic]):
            pulls = self._begin(effect, pulls)
        ahead = pulls.ahead
        if ahead.moved is not None:
            moved, ahead.moved = ahead.moved, None
            ahead.drop()
            self._pulled(effect, pulls, moved)
            return
        early = ahead.take(effect)
        place = self._instance.pull_place(queue, pulls.advised)
        if place is None:
            if early is None:
                reason = f"{queue.broker} has no address"
                self._dispatch(PullFailed(queue, effect.epoch, None, reason))
                return
        else:
            commit_offset = effect.commit_offset
            if early is None:
                # It waits at the broker while there is nothing.
                done = functools.partial(self._pulled, effect, pulls)
                self._send(queue, pulls, effect.offset, commit_offset, place, done, _SUSPEND)
                commit_offset = 0
            for further in ahead.further(effect):
                self._ask_early(queue, pulls, further, commit_offset, place)
                commit_offset = 0
        if early is not None and early.answer is not None:
            self._hand_over(pulls, early)

    def _begin(self, effect: Pull, before: _QueuePulls | None) -> _QueuePulls:
        """A queue was acquired, or its subscription changed."""
        queue, settings = effect.queue, self._settings
        subscription = self._subscriptions[queue.topic]
        self._note_expression(subscription)
        ahead = ReadAhead(effect.epoch, subscription, self._budget)
        if before is not None:
            before.ahead.drop()
            if before.ahead.epoch == effect.epoch:
                # What one of its pulls is told of new offsets counts, whenever it went out.
                ahead.moved = before.ahead.moved
                before.ahead = ahead
                return before
        pulls = self._queues[queue] = _QueuePulls(
            ahead,
            PullRequests(
                self._group,
                queue,
                max_messages=settings.pull_batch_size,
                suspend_timeout_ms=int(settings.broker_suspend_max_time_s * 1000),
            ),
            MASTER_ID if before is None else before.advised,
        )
        self._budget.share(len(self._queues))
        return pulls

    def _note_expression(self, subscription: SubscriptionData) -> None:
        # The first is told to brokers before it is pulled by. Most versions repeat an expression:
        # to wait until brokers have heard of those would only hold pulls up.
        known, least = self._least.get(subscription.topic, (subscription, 0))
        if not subscription.same_as(known):
            least = subscription.version_ms
        self._least[subscription.topic] = subscription, least

    def _ask_early(
        self,
        queue: MessageQueue,
        pulls: _QueuePulls,
        early: EarlyPull,
        commit_offset: int,
        place: tuple[str, bool],
    ) -> None:
        came = functools.partial(self._came, pulls, early)
        self._send(queue, pulls, early.offset, commit_offset, place, came, 0)

    def _send(
        self,
        queue: MessageQueue,
        pulls: _QueuePulls,
        offset: int,
        commit_offset: int,
        place: tuple[str, bool],
        done: Callable[[Command | GimbalError], None],
        flags: int,
    ) -> None:
        address, is_master = place
        if not is_master:
            commit_offset = 0  # offsets are the master's business
        request = pulls.requests.at(
            offset,
            sys_flag=flags | _COMMIT_OFFSET if commit_offset > 0 else flags,
            commit_offset=commit_offset,
            subscription_version_ms=max(
                self._instance.registrations.version(address, self._group, queue.topic),
                self._least[queue.topic][1],
            ),
        )
        self._instance.driver.call(address, request, self._timeout_s, done)

    # ---- answers -----------------------------------------------------------------------------

    def _came(self, pulls: _QueuePulls, early: EarlyPull, answer: Command | GimbalError) -> None:
        """What was asked for early is here, perhaps before it is wanted."""
        if isinstance(answer, Command) and answer.code == _MOVED:
            pulls.ahead.moved = answer
        early.answer = answer
        if early.wanted is None:
            return
        if isinstance(answer, Command):
            # Not at once: more may have come with it.
            self._instance.driver.post(functools.partial(self._hand_over_wanted, pulls))
        else:
            # Nothing comes with an error; and the driver may be closing, when it takes no orders.
            self._hand_over_wanted(pulls)

    def _hand_over_wanted(self, pulls: _QueuePulls) -> None:
        early = pulls.ahead.take_wanted()
        if early is not None:  # else the queue was given up meanwhile
            self._hand_over(pulls, early)

    def _hand_over(self, pulls: _QueuePulls, early: EarlyPull) -> None:
        """What was asked for early is wanted and here."""
        assert early.wanted is not None
        assert early.answer is not None
        if isinstance(early.answer, Command) and early.answer.code == _FOUND:
            self._pulled(early.wanted, pulls, early.answer)
        elif early.wanted.queue.topic in self._subscriptions:  # else the queue is on its way out
            # Whatever is wrong, a pull of now shows whether it still is.
            self.pull(early.wanted)

    def _pulled(self, effect: Pull, pulls: _QueuePulls, answer: Command | GimbalError) -> None:
        if isinstance(answer, Command) and self._is_outdated(effect.queue, pulls, answer):
            self.pull(effect)
            return
        event: PullAnswered | PullFailed
        try:
            event = self._pull_event(effect, pulls, answer)
        except ProtocolError as error:
            reason = f"answer to a pull is unreadable: {error}"
            event = PullFailed(effect.queue, effect.epoch, None, reason)
        self._dispatch(event)

    def _is_outdated(self, queue: MessageQueue, pulls: _QueuePulls, answer: Command) -> bool:
        """Whether an answer says what matches an expression that is not the present one."""
        asked_by, now = pulls.ahead.subscription, self._subscriptions.get(queue.topic)
        if now is asked_by or now is None or now.same_as(asked_by):
            return False
        return answer.code in _FILTERED and self._queues.get(queue) is pulls

    def _pull_event(
        self, effect: Pull, pulls: _QueuePulls, answer: Command | GimbalError
    ) -> PullAnswered | PullFailed:
        queue, epoch = effect.queue, effect.epoch
        if isinstance(answer, GimbalError):
            pulls.advised = MASTER_ID  # a slave that is gone; the master knows better
            return PullFailed(queue, epoch, None, str(answer))
        status = _STATUS.get(answer.code)
        if status is None:
            pulls.advised = MASTER_ID
            return PullFailed(
                queue, epoch, answer.code, f"pull refused with code {answer.code}: {answer.remark}"
            )
        if status is _FOUND_STATUS:
            return self._found(effect, pulls, answer)
        header = parse_pull_response(answer)
        pulls.advised = header.suggested_broker_id
        pulls.ahead.learn(effect.offset, header.next_offset, header.maximum)
        return PullAnswered(queue, epoch, status, header.next_offset, maximum=header.maximum)

    def _found(self, effect: Pull, pulls: _QueuePulls, answer: Command) -> PullAnswered:
        """What an answer brought, and with it those behind it that are here, too."""
        queue, ahead = effect.queue, pulls.ahead
        header, messages = self._read(queue, pulls, effect.offset, answer)
        size = len(answer.body)
        while effect.room.left_after(header.next_offset - effect.offset, size):
            asked = header.next_offset
            following = ahead.answer_at(asked)
            if following is None:
                break
            try:
                header, further = self._read(queue, pulls, asked, following)
            except ProtocolError:
                break  # whoever asks for it next is told
            ahead.take_first()
            if further and further[0].queue_offset < asked:
                # A record that holds several messages may begin before what was asked for.
                further = [message for message in further if message.queue_offset >= asked]
            messages += further
            size += len(following.body)
        return PullAnswered(
            queue,
            effect.epoch,
            _FOUND_STATUS,
            header.next_offset,
            messages,
            _offsets(messages),
            size,
            header.maximum,
        )

    def _read(
        self, queue: MessageQueue, pulls: _QueuePulls, asked: int, answer: Command
    ) -> tuple[PullResponse, list[ReceivedMessage]]:
        found = answer.found if isinstance(answer, FoundCommand) else None
        header = parse_pull_response(answer) if found is None else found
        messages = self._messages(queue, pulls.ahead.subscription, answer)
        pulls.advised = header.suggested_broker_id
        pulls.ahead.learn(asked, header.next_offset, header.maximum)
        return header, messages

    def _messages(
        self, queue: MessageQueue, subscription: SubscriptionData, answer: Command
    ) -> list[ReceivedMessage]:
        messages = decode_records(answer.body, queue.broker)
        namespace = self._settings.namespace
        if namespace is not None:
            for message in messages:
                message.namespace = namespace
        if subscription.tags:
            # The broker compares hashes of tags; two tags may share one.
            messages = [message for message in messages if subscription.matches(message.tags)]
        return messages


def _offsets(messages: Sequence[ReceivedMessage]) -> Sequence[int]:
    """The offsets of messages, which ascend; nearly always without a gap."""
    if not messages:
        return ()
    first, last = messages[0].queue_offset, messages[-1].queue_offset
    if last - first == len(messages) - 1:
        return range(first, last + 1)
    return [message.queue_offset for message in messages]
