"""Reads ranges of queues and gives them to Spark as Arrow record batches. Runs in tasks.

A broker gives at most 32 messages per pull, so throughput is the number of pulls under way. The
ranges of a task are cut into segments; a window of them is asked for ahead, at offsets that are
predicted. While one batch is decoded and handed to Spark, the brokers fill the sockets with the
next. Answers come in any order and are put back into that of the offsets, so a task that is
tried again gives the same rows in the same order.

One thread, no locks. Each pull carries its own subscription: nothing is registered at the broker,
and nothing is committed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gimbalmq.errors import (
    BrokerError,
    ConfigurationError,
    GimbalError,
    OffsetError,
    ProtocolError,
    TransportError,
)
from gimbalmq.flows.effects import broker_error
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark import connections
from gimbalmq.spark.lookup import broker_address
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.planning import ReadRange
from gimbalmq.spark.positions import Loss
from gimbalmq.spark.pulling import PULL_CODES, Advance, AskAgain, Gone, judge
from gimbalmq.spark.schema import Column, arrow_schema
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.transport.reach import Reach
from gimbalmq.wire.codes import PullFlag, ResponseCode
from gimbalmq.wire.columns import decode_columns
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import parse_pull_response, pull_request, set_pull_place
from gimbalmq.wire.names import Namespace

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangePuller", "Segment", "read_batches"]

_log = logging.getLogger("gimbalmq.spark")

#: What brokers give per pull unless configured otherwise.
_PULL_MESSAGES: Final = 32
#: Pulls under way at once: at 1 KiB a message these are 2 MiB, what sockets hold while Spark
#: looks at the batch before.
_WINDOW: Final = 64
#: Answers that may wait for those before them; large messages are asked for with fewer pulls.
_HELD_BYTES_MAX: Final = 16 << 20
_WINDOW_MIN: Final = 4
#: With a filter, a broker looks at some 800 messages per pull; more is never worth asking for.
_STRIDE_MAX: Final = 1024
_ANSWER_TIMEOUT_S: Final = 15.0
#: How long a broker may fail without a single good answer: longer than a restart takes.
_PATIENCE_S: Final = 30.0
_BACK_OFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

#: Decoding pays off from about a thousand messages on; Spark is best served with batches of 2,000
#: to 10,000 rows and at most 8 to 16 MB.
_BATCH_MESSAGES: Final = 5_000
_BATCH_BYTES: Final = 8 << 20

_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)
_FOUND: Final = int(ResponseCode.SUCCESS)
_WORDS_FOR_CODES: Final = {
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): (
        "option 'group': brokers here do not create groups by themselves; name one that exists"
    ),
    int(ResponseCode.TOPIC_NOT_EXIST): "option 'topic': the topic was deleted meanwhile",
    int(ResponseCode.NO_PERMISSION): "reading is not permitted: check the topic's permission",
    int(ResponseCode.SUBSCRIPTION_PARSE_FAILED): "option 'tags' or 'sql' is not understood",
}


class Segment:
    """A small part of a range: asked for as a whole, answered in one piece or several.

    `offset` is the next to ask for; each answer has its body and the offsets it was asked for.
    """

    __slots__ = ("answers", "bytes", "messages", "offset", "parked", "queue", "until")

    def __init__(self, queue: MessageQueue, offset: int, until: int) -> None:
        self.queue = queue
        self.offset = offset
        self.until = until
        self.answers: list[tuple[bytes | memoryview, tuple[int, int]]] = []
        self.bytes = 0
        #: An upper bound: a filter leaves fewer.
        self.messages = 0
        #: Whether the rest is asked for only when everything before it is there.
        self.parked = False

    @property
    def complete(self) -> bool:
        """Whether nothing of it is missing."""
        return self.offset >= self.until


class _Link:
    """The connection to one broker, and what is under way on it."""

    __slots__ = ("_reach", "address", "broker", "connection", "waiting")

    def __init__(self, broker: str, address: str, reach: Reach) -> None:
        self._reach = reach
        self.broker = broker
        self.address = address
        self.connection: BlockingConnection | None = None
        self.waiting: dict[int, Segment] = {}

    def ask(self, requests: Iterable[Command], segments: Sequence[Segment]) -> None:
        """Send a request for each of these segments, in one piece."""
        if self.connection is None:
            self.connection = connections.take(self.address, self._reach)
        self.waiting.update(zip(self.connection.send_all(requests), segments, strict=True))

    def drop(self) -> list[Segment]:
        """Close the connection; returns what was under way on it, in the order of asking."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        lost, self.waiting = list(self.waiting.values()), {}
        return lost

    def release(self) -> None:
        if self.connection is not None and not self.waiting:
            connections.give_back(self.connection)
            self.connection = None
        self.drop()


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
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._options = options
        self._filtered = options.filtered
        self._subscriptions = {
            one.queue.topic: options.subscription(one.queue.topic) for one in ranges
        }
        self._patience_s = patience_s
        self._todo = deque((one.queue, one.offset_from, one.offset_until) for one in ranges)
        self._links = {
            one.queue.broker: _Link(one.queue.broker, one.address, options.reach) for one in ranges
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

    def _receive(self, link: _Link) -> None:
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
                if segment is not None:
                    self._take(segment, answer, link)
        self._send()

    def _take(self, segment: Segment, answer: Command, link: _Link) -> None:
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
        loss = Loss(segment.queue, segment.offset, found)
        if self._options.fail_on_data_loss:
            raise OffsetError(
                f"{loss.sentence}. Set option 'failOnDataLoss' to false to read what is there"
            )
        if segment.queue not in self._reported:
            self._reported.add(segment.queue)
            _log.warning("%s; going on without what is gone (failOnDataLoss=false)", loss.sentence)
        segment.offset = found if found > segment.offset else segment.until

    def _refused(self, segment: Segment, answer: Command, link: _Link) -> None:
        error = broker_error(link.address, self._request(segment), answer)
        if not error.retryable:
            words = _WORDS_FOR_CODES.get(answer.code)
            raise self._named(link, segment.queue, error, words)
        self._wait(link, segment.queue, error)
        self._unsent.append(segment)

    def _lose(self, link: _Link, error: TransportError) -> None:
        """The connection is of no use: ask again for all that was under way, maybe elsewhere."""
        # What waited to be sent may be among it, or stand behind it.
        lost = link.drop()
        lost.extend(one for one in self._unsent if one not in lost)
        self._unsent = lost
        self._wait(link, lost[0].queue, error)
        self._relocate(link, lost[0].queue.topic)

    def _wait(self, link: _Link, queue: MessageQueue, error: GimbalError) -> None:
        """Wait before another attempt; raise when there was no progress for too long."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > self._patience_s:
            raise self._named(link, queue, error, f"no progress for {self._patience_s:g} s")
        time.sleep(_BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)])
        self._failures += 1

    def _relocate(self, link: _Link, topic: str) -> None:
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

    def _named(
        self, link: _Link, queue: MessageQueue, error: GimbalError, words: str | None
    ) -> GimbalError:
        text = f"cannot read {queue.path} from {link.broker} ({link.address}): "
        text += f"{words} ({error})" if words else str(error)
        if isinstance(error, BrokerError):
            return BrokerError(
                text, code=error.code or 0, address=link.address, remark=error.remark
            )
        return TransportError(text, address=link.address)


def read_batches(
    ranges: Sequence[ReadRange],
    options: ReadOptions,
    columns: Sequence[Column],
    *,
    patience_s: float = _PATIENCE_S,
) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges, as record batches with exactly these columns."""
    schema = arrow_schema(columns)
    collected: list[Segment] = []
    messages = size = 0
    for segment in RangePuller(ranges, options, patience_s=patience_s):
        collected.append(segment)
        messages += segment.messages
        size += segment.bytes
        if messages >= _BATCH_MESSAGES or size >= _BATCH_BYTES:
            yield from _decoded(collected, options, columns, schema)
            collected, messages, size = [], 0, 0
    if collected:
        yield from _decoded(collected, options, columns, schema)


def _decoded(
    segments: Sequence[Segment],
    options: ReadOptions,
    columns: Sequence[Column],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [column.source for column in columns]
    tags = options.subscription("").tags
    looked_at = [*names, "tags"] if tags and "tags" not in names else names
    for decoded in _decoded_in_parts(segments, looked_at):
        batch = decoded
        if tags:
            # The broker compares hashes of tags; two tags may have the same.
            wanted = pc.is_in(batch.column("tags"), value_set=pa.array(sorted(tags), pa.string()))
            batch = batch.filter(wanted)
        if batch.num_rows:
            found = (_as_known(batch.column(name), name, options.namespace) for name in names)
            arrays = [
                # Only a map whose values the user declared NOT NULL differs.
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip(found, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_known(array: Any, name: str, space: Namespace) -> Any:
    """A column with topics as the user knows them; all others as they are."""
    if space.name is None or name != "topic":
        return array
    import pyarrow as pa

    encoded = array.dictionary_encode()
    names = pa.array(map(space.user, encoded.dictionary.to_pylist()), array.type)
    return names.take(encoded.indices)


def _decoded_in_parts(
    segments: Sequence[Segment], names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """One batch as a rule; more when bodies expand beyond what an Arrow column can hold."""
    answers = [(body, one.queue.broker) for one in segments for body, _ in one.answers]
    # An answer may hold more than was asked for: behind, with a filter; before, in a batch record.
    bounds = [asked for one in segments for _, asked in one.answers]
    try:
        yield decode_columns(answers, names, ranges=bounds)
    except (ConfigurationError, ProtocolError) as error:
        if len(segments) == 1:
            one = segments[0]
            raise type(error)(
                f"cannot decode the messages of {one.queue.path} before offset {one.until}: {error}. "
                "Options 'startingOffsets' and 'endingOffsets' can leave them out"
            ) from error
        middle = len(segments) // 2
        yield from _decoded_in_parts(segments[:middle], names)
        yield from _decoded_in_parts(segments[middle:], names)
