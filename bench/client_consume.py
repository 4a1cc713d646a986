"""Consuming a full topic, and sharing one queue among workers whose listeners are slow.

Both sides have 20 workers and listeners that look at each body. The time runs from the first
listener call to the end of the last, so that joining the group counts for neither. Every round is
a new group that reads the topic from its beginning, with offsets, flow control and retries on.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from client_stage import SIZES, Stage
from gimbalmq import Message, Producer, PushConsumer, ReceivedMessage
from harness import Row

__all__ = ["rows"]

QUEUES: Final = 8
WORKERS: Final = 20
COUNT: Final = 800_000
BATCHES: Final = (1, 32)
LIMIT_S: Final = 300.0

SLEEP_CASE: Final = "consume/sleep-50ms"
SLEEP_S: Final = 0.05
SLEEP_TOPIC: Final = "consume-sleep"

_groups = itertools.count(1)


def rows(stage: Stage) -> Iterator[Row]:
    """One row per listener batch and body size, and one for slow listeners."""
    for name, size in SIZES.items():
        cases = [
            (f"consume/batch-{batch}/{name}", batch)
            for batch in BATCHES
            if stage.wanted(f"consume/batch-{batch}/{name}")
        ]
        if cases:
            topic = f"consume-{name}"
            fill(stage, topic, size)
            warm_up(stage, topic)
            for case, batch in cases:
                yield stage.compare(
                    case,
                    COUNT,
                    functools.partial(drain, stage, topic, batch),
                    functools.partial(java_drain, stage, topic, batch),
                    rounds=stage.rounds,
                )
    if stage.wanted(SLEEP_CASE):
        yield sleepers(stage)


def fill(stage: Stage, topic: str, size: int) -> None:
    """Put the messages of all rounds there, once."""
    stage.cluster.create_topic(topic, queues=QUEUES)
    with stage.java.producer("bench-fill", timeout_ms=30_000) as producer:
        # Turns over the queues: 100 is no multiple of the queues, so they are filled evenly.
        producer.pump(topic, "batch", count=COUNT, size=size, width=100)


def warm_up(stage: Stage, topic: str) -> None:
    """Java's compiler needs a million messages or two; ours reads the topic once."""
    drain(stage, topic, 1)
    for number in range(max(1, 2 * stage.warm // COUNT)):
        java_drain(stage, topic, BATCHES[number % len(BATCHES)])


class Watch:
    """Counts messages, and takes the time from the first listener call to the end of the last."""

    def __init__(self, messages: int) -> None:
        self._numbers = itertools.count(1)
        self._messages = messages
        self._lock = threading.Lock()
        self._batched = 0
        self._started = 0.0
        self._ended = 0.0
        self._over = threading.Event()

    def one(self, message: ReceivedMessage) -> None:
        """A listener for single messages."""
        if not self._started:
            self._started = time.perf_counter()
        len(message.body)
        if next(self._numbers) == self._messages:
            self._end()

    def many(self, messages: list[ReceivedMessage]) -> None:
        """A listener for batches; counts once per batch, as Java's does."""
        if not self._started:
            self._started = time.perf_counter()
        for message in messages:
            len(message.body)
        with self._lock:
            self._batched += len(messages)
            if self._batched == self._messages:
                self._end()

    def sleep(self, _message: ReceivedMessage) -> None:
        """A listener that waits for something else most of the time."""
        if not self._started:
            self._started = time.perf_counter()
        time.sleep(SLEEP_S)
        if next(self._numbers) == self._messages:
            self._end()

    def _end(self) -> None:
        self._ended = time.perf_counter()
        self._over.set()

    def seconds(self) -> float:
        """Wait for the last expected message; the time since the first."""
        if not self._over.wait(LIMIT_S):
            raise TimeoutError(f"fewer than {self._messages} messages within {LIMIT_S:g} s")
        return self._ended - self._started


def drain(stage: Stage, topic: str, batch: int) -> float:
    """Read the whole topic as a new group with the Python client; the seconds."""
    watch = Watch(COUNT)
    consumer = PushConsumer(
        f"bench-python-{next(_groups)}",
        nameserver=stage.nameserver,
        start_from="first",
        batch_size=batch,
        workers=WORKERS,
    )
    consumer.subscribe(topic, listener=watch.one if batch == 1 else watch.many)
    with consumer:
        return watch.seconds()


def java_drain(stage: Stage, topic: str, batch: int) -> float:
    """The same with the Java client."""
    with stage.java.push_consumer(
        f"bench-java-{next(_groups)}",
        topic,
        batch_size=batch,
        report="count",
        workers=WORKERS,
        expect=COUNT,
    ) as consumer:
        return until(consumer.lapse)


def until(lapse: Callable[[], float | None]) -> float:
    """Ask now and then; rarely, so that asking costs the other side nothing."""
    deadline = time.monotonic() + LIMIT_S
    while (seconds := lapse()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the Java consumer was not done within {LIMIT_S:g} s")
        time.sleep(0.1)
    return seconds


def sleepers(stage: Stage) -> Row:
    """Twenty messages of one queue, twenty workers, 50 ms each: 50 ms if all work at once."""
    stage.cluster.create_topic(SLEEP_TOPIC, queues=1)
    watches: list[Watch] = [Watch(0)]
    consumer = PushConsumer("bench-python-sleep", nameserver=stage.nameserver, workers=WORKERS)

    @consumer.subscribe(SLEEP_TOPIC)
    def _listener(message: ReceivedMessage) -> None:
        watches[-1].sleep(message)

    with (
        Producer("bench-sleep", nameserver=stage.nameserver) as producer,
        consumer,
        stage.java.push_consumer(
            "bench-java-sleep",
            SLEEP_TOPIC,
            consume_from="CONSUME_FROM_LAST_OFFSET",
            report="count",
            workers=WORKERS,
            sleep_ms=int(SLEEP_S * 1000),
        ) as java,
    ):

        def round_of_both() -> tuple[float, float]:
            watches.append(Watch(WORKERS))
            java.expect(WORKERS)
            producer.send_batch([Message(SLEEP_TOPIC, b"x") for _ in range(WORKERS)])
            return watches[-1].seconds(), until(java.lapse)

        for _ in range(3):  # both have their threads and have seen how slow listeners are
            round_of_both()
        taken = [round_of_both() for _ in range(stage.rounds)]
    ours, theirs = (sorted(side)[len(side) // 2] for side in zip(*taken, strict=True))
    note = f"{WORKERS} messages of one queue, {WORKERS} workers; median of {stage.rounds}"
    return Row(SLEEP_CASE, ours, theirs, "java", "s", note)
