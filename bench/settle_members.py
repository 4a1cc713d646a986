"""Python members of one group in a process of their own, steered by lines of JSON.

    python bench/settle_members.py NAMESERVER GROUP TOPIC ORDERED

Standard input takes `{"op": ...}`: open (with `count`), owned, mark, firsts, close; each line is
answered by one line. The end of standard input ends the process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from gimbalmq import PushConsumer, ReceivedMessage

__all__ = ["main"]


class Member:
    """One member, and when each of its queues delivered here first since the mark."""

    def __init__(self, nameserver: str, group: str, topic: str, *, ordered: bool) -> None:
        self.first_ms: dict[str, int] = {}
        self._topic = topic
        self._consumer = PushConsumer(
            group, nameserver=nameserver, ordered=ordered, workers=4, start_from="last"
        )
        self._consumer.subscribe(topic, listener=self._listen)
        self._consumer.start()

    def _listen(self, message: ReceivedMessage) -> None:
        path = message.queue.path
        if path not in self.first_ms:
            self.first_ms[path] = time.time_ns() // 1_000_000

    def owned(self) -> list[str]:
        return [queue.path for queue in self._consumer.assignment() if queue.topic == self._topic]

    def close(self) -> None:
        self._consumer.stop()


def main(nameserver: str, group: str, topic: str, ordered: str) -> None:
    """Serve until standard input ends."""
    members: list[Member] = []

    def start(count: int) -> None:
        members.extend(
            Member(nameserver, group, topic, ordered=ordered == "ordered") for _ in range(count)
        )

    def mark() -> None:
        for member in members:
            member.first_ms = {}

    def close() -> None:
        while members:
            members.pop().close()

    operations: dict[str, Callable[..., Any]] = {
        "open": start,
        "owned": lambda: [member.owned() for member in members],
        "mark": mark,
        "firsts": lambda: [member.first_ms for member in members],
        "close": close,
    }
    for line in sys.stdin:
        request = json.loads(line)
        answer = operations[request.pop("op")](**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
