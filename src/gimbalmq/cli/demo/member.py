"""A Python member of the demo's group, as a process of its own: it can be killed for real.

    python -m gimbalmq.cli.demo.member NAMESERVER GROUP TOPIC NAME

Tells on standard output what it owns and gets; leaves the group when its standard input closes,
and so never outlives the demo.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from gimbalmq.cli.demo.reports import (
    LINE_BYTES_MAX,
    Failed,
    Joining,
    Leaving,
    Owned,
    Rebalanced,
    Received,
    Report,
    encode,
)
from gimbalmq.client.push_consumer import PushConsumer
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["main"]

_LOOK_INTERVAL_S: Final = 0.02
_DRAIN_S: Final = 3.0
#: Java's 5 s would leave more messages to be delivered twice after a kill than a demo likes.
_PERSIST_INTERVAL_S: Final = 1.0
_STDOUT: Final = 1


def main(arguments: Sequence[str]) -> int:
    """Be a member until standard input closes."""
    nameserver, group, topic, name = arguments
    consumer = PushConsumer(
        group,
        nameserver=nameserver,
        client_id=name,
        start_from="first",
        workers=4,
        persist_consumer_offset_interval_s=_PERSIST_INTERVAL_S,
    )

    def take(message: ReceivedMessage) -> None:
        # Only messages that a user sends to the demo's topic have no key.
        key = next(iter(message.keys), message.message_id)
        _tell(Received(time.monotonic(), key, message.queue))

    def told(report: RebalanceReport) -> None:
        if any(queue.topic == topic for queue in (*report.acquired, *report.revoked)):
            _tell(Rebalanced(time.monotonic(), report.trigger.value))

    consumer.subscribe(topic, listener=take)
    consumer.on_rebalance(told)
    try:
        _tell(Joining(time.monotonic(), consumer.client_id))
        with consumer:
            _watch(consumer, topic)
            _tell(Leaving(time.monotonic()))
            consumer.stop(_DRAIN_S)
    except GimbalError as error:
        _tell(Failed(str(error)))
        return 1
    return 0


def _watch(consumer: PushConsumer, topic: str) -> None:
    """Tell every change of what the consumer owns, until standard input closes."""
    closed = threading.Event()

    def read() -> None:
        sys.stdin.buffer.read()
        closed.set()

    threading.Thread(target=read, name="stdin", daemon=True).start()
    before: frozenset[MessageQueue] | None = None
    while not closed.wait(_LOOK_INTERVAL_S):
        owned = frozenset(queue for queue in consumer.assignment() if queue.topic == topic)
        if owned != before:
            _tell(Owned(time.monotonic(), tuple(sorted(owned))))
            before = owned


def _tell(report: Report) -> None:
    line = encode(report)
    assert len(line) <= LINE_BYTES_MAX, "a longer line could be cut by a kill"
    # Past Python's buffers: what is written stays written, whatever happens to this process.
    os.write(_STDOUT, line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
