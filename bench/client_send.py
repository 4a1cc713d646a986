"""Sending, one thread on each side: waiting for each answer, pipelined, in batches of 100."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Final, Literal

from client_stage import SIZES, Stage
from gimbalmq import Message, Producer
from gimbalmq.testing import JavaProducer
from harness import Row

__all__ = ["cases", "rows"]

Mode = Literal["sync", "pipelined", "batch"]

TOPIC: Final = "send"
#: How many messages have no answer yet, on both sides.
IN_FLIGHT: Final = 256
BATCH: Final = 100
#: Java's compiler has done its best with a sync send long before; see the rounds of a longer run.
SYNC_WARM: Final = 20_000
#: Messages of a round, and how many are in flight or in a batch.
CASES: Final[dict[Mode, tuple[int, int]]] = {
    "sync": (2_000, 1),
    "pipelined": (15_000, IN_FLIGHT),
    "batch": (40_000, BATCH),
}


def cases(stage: Stage) -> list[tuple[str, Mode, int]]:
    """What the command line asks for: name, way to send, body size."""
    return [
        (f"send/{mode}/{name}", mode, size)
        for mode in CASES
        for name, size in SIZES.items()
        if stage.wanted(f"send/{mode}/{name}")
    ]


def rows(stage: Stage) -> Iterator[Row]:
    """One row per way to send and body size."""
    stage.cluster.create_topic(TOPIC, queues=4)
    with (
        Producer(
            "bench-python",
            nameserver=stage.nameserver,
            timeout_s=10.0,
            back_pressure_for_async_send_num=IN_FLIGHT,
        ) as producer,
        stage.java.producer("bench-java", timeout_ms=10_000) as java,
    ):
        warm_up(stage, producer, java)
        for case, mode, size in cases(stage):
            count, width = CASES[mode]
            yield stage.compare(
                case,
                count,
                functools.partial(pump, producer, mode, size, count),
                functools.partial(java.pump, TOPIC, mode, count=count, size=size, width=width),
                rounds=stage.rounds,
            )


def warm_up(stage: Stage, producer: Producer, java: JavaProducer) -> None:
    """Everything that is measured runs before, on both sides, and so does the broker."""
    for mode, (count, width) in CASES.items():
        pump(producer, mode, 100, count)
        share = max(count, stage.warm // 2) if mode != "sync" else SYNC_WARM
        java.pump(TOPIC, mode, count=share, size=100, width=width)


def pump(producer: Producer, mode: str, size: int, count: int) -> float:
    """Send messages as fast as this thread can; returns the seconds."""
    body = b"x" * size
    started = time.perf_counter()
    if mode == "sync":
        send = producer.send
        for _ in range(count):
            send(Message(TOPIC, body))
    elif mode == "pipelined":
        send_async = producer.send_async
        futures = [send_async(Message(TOPIC, body)) for _ in range(count)]
        producer.flush()
        for future in futures:
            future.result(0)
    else:
        for _ in range(count // BATCH):
            producer.send_batch([Message(TOPIC, body) for _ in range(BATCH)])
    return time.perf_counter() - started
