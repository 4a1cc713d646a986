"""Python members of one group in a process of their own, steered by lines of JSON.

    python bench/settle_members.py NAMESERVER GROUP TOPIC ORDERED

Standard input takes `{"op": ...}`: open (with `count`), owned, mark, firsts, close; each line is
answered by one line; `rehearse` lets a member of another group come and go. The end of standard
input ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from gimbalmq import PushConsumer, ReceivedMessage

__all__ = ["main", "wait_until"]

_LIMIT_S = 120.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again and again, not so often that the answers disturb."""
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_LIMIT_S:g} s")
        time.sleep(0.2)


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

    def join(group: str) -> Member:
        return Member(nameserver, group, topic, ordered=ordered == "ordered")

    def start(count: int) -> None:
        members.extend(join(group) for _ in range(count))

    def rehearse() -> None:
        member = join(f"{group}-rehearsal-{os.getpid()}")
        wait_until(lambda: bool(member.first_ms))
        member.close()

    def mark() -> None:
        for member in members:
            member.first_ms = {}

    def close() -> None:
        while members:
            members.pop().close()

    operations: dict[str, Callable[..., Any]] = {
        "rehearse": rehearse,
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
