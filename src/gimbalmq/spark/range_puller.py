"""Pulls ranges of queues with many pulls under way, and gives them back in order. Runs in tasks.

A broker gives at most 32 messages per pull, so throughput is the number of pulls under way. The
ranges of a task are cut into segments; a window of them is asked for ahead, at offsets that are
predicted. While one batch is decoded and handed to Spark, the brokers fill the sockets with the
next. The window is filled up when half of it is free: a broker that finds many pulls at once wakes
its threads once for all of them, and spends a fifth less on each. Answers come in any order and
are put back into that of the offsets, so a task that is tried again gives the same rows in the
same order.

One thread, no locks. Each pull carries its own subscription: nothing is registered at the broker,
and nothing is committed. What messages look like is not known here (`reading`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    GimbalError,
    OffsetError,
    TransportError,
)
from gimbalmq.flows.effects import broker_error
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark.lookup import broker_address
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.positions import Loss
from gimbalmq.spark.pull_links import Link, Segment
from gimbalmq.spark.pulling import PULL_CODES, Advance, AskAgain, Gone, judge
from gimbalmq.wire.codes import PullFlag, ResponseCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_pull_response, pull_request, set_pull_place

__all__ = ["PATIENCE_S", "RangePuller"]

_log = logging.getLogger("gimbalmq.spark")

#: What brokers give per pull unless configured otherwise.
_PULL_MESSAGES: Final = 32
#: Pulls under way at once: at 1 KiB a message these are 4 MiB, what sockets hold while Spark
#: looks at the batch before.
_WINDOW: Final = 128
#: Answers that may wait for those before them; large messages are asked for with fewer pulls.
_HELD_BYTES_MAX: Final = 16 << 20
_WINDOW_MIN: Final = 4
#: With a filter, a broker looks at some 800 messages per pull; more is never worth asking for.
_STRIDE_MAX: Final = 1024
_ANSWER_TIMEOUT_S: Final = 15.0
#: How long a broker may fail without a single good answer: longer than a restart takes.
PATIENCE_S: Final = 30.0
_BACK_OFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
_FOUND: Final = int(ResponseCode.SUCCESS)


class RangePuller:
    """Pulls ranges with many pulls under way; iterate over it once to get segments in order.

    A failure that may pass is tried again for `patience_s` without progress, each time after
    asking the name server where the broker is now.

    Raises while iterating:
        OffsetError: offsets of a range are gone and `failOnDataLoss` is true.
        TransportError, BrokerError: a broker cannot be read; the text names broker and queue.
    """

    def __init__(
        self,
        ranges: Sequence[ReadRange],
        options: ReadOptions,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._options = options
        self._filtered = options.filtered
        self._subscriptions = {
            one.queue.topic: options.subscription(one.queue.topic) for one in ranges
        }
        self._patience_s = patience_s
        self._todo = deque((one.queue, one.offset_from, one.offset_until) for one in ranges)
        self._links = {
            one.queue.broker: Link(one.queue.broker, one.address, options.reach) for one in ranges
        }
        #: One request per queue, of which only the offset and the number are changed.
        self._requests: dict[MessageQueue, Command] = {}
        self._window: deque[Segment] = deque()
        self._unsent: list[Segment] = []
        # How large messages are, and how far a pull with a filter gets, is learned first.
        self._window_max = 1 if self._filtered else _WINDOW_MIN
        self._stride = _PULL_MESSAGES
        #: Bytes of answers in the window.
        self._held = 0
        self._answer_bytes = 1
        self._failing_since_s: float | None = None
        self._failures = 0
        self._reported: set[MessageQueue] = set()

    def __iter__(self) -> Iterator[Segment]:
        try:
            self._fill()
            while self._window:
                head = self._window[0]
                if head.parked:
                    head.parked = False
                    self._unsent.append(head)
                    self._send()
                while not head.complete:
                    self._receive(self._links[head.queue.broker])
                there = self._all_there()
                # Before they are decoded: the brokers fill the sockets meanwhile.
                self._fill()
                yield from there
        finally:
            for link in self._links.values():
                link.release()

    def _all_there(self) -> list[Segment]:
        """Take everything out of the window that nothing is missing before; what has messages."""
        there: list[Segment] = []
        window = self._window
        while window and window[0].complete:
            segment = window.popleft()
            self._held -= segment.bytes
            if segment.answers:
                there.append(segment)
        return there

    def _fill(self) -> None:
        if 2 * len(self._window) > self._window_max:
            return
        while self._todo and self._has_room():
            queue, offset, until = self._todo[0]
            segment_until = min(offset + self._stride, until)
            segment = Segment(queue, offset, segment_until)
            self._window.append(segment)
            self._unsent.append(segment)
            if segment_until < until:
                self._todo[0] = (queue, segment_until, until)
            else:
                self._todo.popleft()
        self._send()

    def _has_room(self) -> bool:
        waiting = len(self._window)
        return not waiting or (waiting < self._window_max and self._held < _HELD_BYTES_MAX)

    def _send(self) -> None:
        while self._unsent:
            link = self._links[self._unsent[0].queue.broker]
            mine = [one for one in self._unsent if one.queue.broker == link.broker]
            try:
                link.ask(map(self._request, mine), mine)
            except TransportError as error:
                self._lose(link, error)
            else:
                self._unsent = [one for one in self._unsent if one.queue.broker != link.broker]

    def _request(self, segment: Segment) -> Command:
        """What asks for the segment; valid until the next one of the same queue is made."""
        request = self._requests.get(segment.queue)
        if request is None:
            subscription = self._subscriptions[segment.queue.topic]
            request = self._requests[segment.queue] = pull_request(
                group=self._options.pull_group,
                queue=segment.queue,
                offset=0,
                sys_flag=_SUBSCRIPTION,
                expression=subscription.expression,
                expression_type=subscription.expression_type,
            )
        set_pull_place(request, segment.offset, min(_PULL_MESSAGES, segment.until - segment.offset))
        return request

    def _receive(self, link: Link) -> None:
        """Take the answers of the broker that are there, one at least, and act on them."""
        assert link.connection is not None, "a segment is waited for that was not asked for"
        try:
            answers = link.connection.receive_all(_ANSWER_TIMEOUT_S)
        except TransportError as error:
            self._lose(link, error)
        else:
            waiting = link.waiting
            for answer in answers:
                segment = waiting.pop(answer.opaque, None)
                # None: an answer to somebody who used the connection before and was interrupted.
                if segment is not None and not self._takes_whole(segment, answer):
                    self._take(segment, answer, link)
        self._send()

    def _takes_whole(self, segment: Segment, answer: Command) -> bool:
        """Take the answer that is usual, all that was asked for; leave any other to `_take`.

        The same for less: most of what a header says matters only when something is missing.
        """
        fields = answer.fields
        if (
            answer.code != _FOUND
            or self._filtered
            or self._failures
            or segment.answers
            or fields.get("nextBeginOffset") != str(segment.until)
            or fields.get("offsetDelta", "0") != "0"
            or self._stride != _PULL_MESSAGES
        ):
            return False
        self._learn_size(len(answer.body))
        self._advance(segment, segment.until, answer)
        return True

    def _take(self, segment: Segment, answer: Command, link: Link) -> None:
        if answer.code not in PULL_CODES:
            self._refused(segment, answer, link)
            return
        asked = segment.offset
        response = parse_pull_response(answer)
        if response.offset_delta:
            raise ConfigurationError(
                f"topic '{segment.queue.topic}' is a static topic, whose queues are spread over "
                "brokers: this source cannot read it"
            )
        match judge(asked, answer.code, response, filtered=self._filtered):
            case Advance(following):
                self._failing_since_s, self._failures = None, 0
                self._learn(segment, following, len(answer.body))
                self._advance(segment, following, answer)
            case Gone(found):
                self._gone(segment, found)
            case AskAgain():
                refusal = BrokerError(
                    f"offset {asked} is in the queue and is not served",
                    code=answer.code,
                    address=link.address,
                )
                self._wait(link, segment.queue, refusal)
        if not segment.complete:
            self._ask_for_rest(segment)

    def _ask_for_rest(self, segment: Segment) -> None:
        segment.parked = self._held >= _HELD_BYTES_MAX and segment is not self._window[0]
        if not segment.parked:
            self._unsent.append(segment)

    def _learn(self, segment: Segment, following: int, size: int) -> None:
        """From how far an answer got and how large it is: what to ask for next, and how often."""
        looked_at = following - segment.offset
        if self._filtered:
            self._stride = max(self._stride, min(looked_at, _STRIDE_MAX))
        elif not segment.answers:  # only a first answer was asked for the whole stride
            asked = segment.until - segment.offset
            longer = min(max(self._stride, 2 * asked), _PULL_MESSAGES)
            self._stride = looked_at if looked_at < asked else longer
        self._learn_size(size)

    def _learn_size(self, size: int) -> None:
        # The largest of late: the last answer of a segment may be small among large ones.
        largest = max(size, self._answer_bytes * 15 // 16, 1)
        if largest != self._answer_bytes:
            self._answer_bytes = largest
            self._window_max = max(_WINDOW_MIN, min(_WINDOW, _HELD_BYTES_MAX // largest))

    def _advance(self, segment: Segment, following: int, answer: Command) -> None:
        looked_at = following - segment.offset
        if answer.code == _FOUND:
            segment.answers.append((answer.body, (segment.offset, segment.until)))
            segment.bytes += len(answer.body)
            self._held += len(answer.body)
            segment.messages += min(looked_at, _PULL_MESSAGES)
        segment.offset = following

    def _gone(self, segment: Segment, found: int) -> None:
        loss = Loss(segment.queue, self._first_gone(segment, found), found)
        if self._options.fail_on_data_loss:
            raise OffsetError(
                f"{loss.sentence}. Set option 'failOnDataLoss' to false to read what is there"
            )
        if segment.queue not in self._reported:
            self._reported.add(segment.queue)
            _log.warning("%s; going on without what is gone (failOnDataLoss=false)", loss.sentence)
        segment.offset = found if found > segment.offset else segment.until

    def _first_gone(self, segment: Segment, found: int) -> int:
        """The first offset that is wanted and gone; its answer may come after a later one's."""
        if found <= segment.offset:
            return segment.offset
        missing = (
            one.offset for one in self._window if one.queue == segment.queue and not one.complete
        )
        return min(segment.offset, next(missing, segment.offset))

    def _refused(self, segment: Segment, answer: Command, link: Link) -> None:
        error = broker_error(link.address, self._request(segment), answer)
        if not error.retryable:
            raise link.refused(segment.queue, error)
        self._wait(link, segment.queue, error)
        self._unsent.append(segment)

    def _lose(self, link: Link, error: TransportError) -> None:
        """The connection is of no use: ask again for all that was under way, maybe elsewhere."""
        # What waited to be sent may be among it, or stand behind it.
        lost = link.drop()
        lost.extend(one for one in self._unsent if one not in lost)
        self._unsent = lost
        self._wait(link, lost[0].queue, error)
        self._relocate(link, lost[0].queue.topic)

    def _wait(self, link: Link, queue: MessageQueue, error: GimbalError) -> None:
        """Wait before another attempt; raise when there was no progress for too long."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > self._patience_s:
            raise link.failed(queue, error, f"no progress for {self._patience_s:g} s")
        time.sleep(_BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)])
        self._failures += 1

    def _relocate(self, link: Link, topic: str) -> None:
        """Ask where the broker is now; a broker may come back at another address."""
        pool = ConnectionPool(reach=self._options.reach)
        try:
            route = run_inline(fetch_route(NameServers(self._options.nameservers), topic), pool)
            link.address = broker_address(route, link.broker)
        except GimbalError as error:
            # The next attempt goes to the old address, and its failure is reported.
            _log.info("the name server does not say where %s is: %s", link.broker, error)
        finally:
            pool.close()
