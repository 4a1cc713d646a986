"""Members in another process, ours and Java's, behind one interface."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from gimbalmq import MessageQueue
from gimbalmq.model.queue import parse_queue
from gimbalmq.testing import JavaPeer
from gimbalmq.testing.actors import JavaPushConsumer
from settle_members import wait_until

__all__ = ["JavaProcess", "Process", "PythonProcess", "wait_until"]

_SCRIPT = Path(__file__).with_name("settle_members.py")


class Process(Protocol):
    """A running process that may hold members of the group."""

    def rehearse(self) -> None:
        """Let a member of another group come and go: what is loaded once is loaded then."""

    def open(self, count: int) -> None:
        """Let members join; returns when they are started."""

    def owned(self) -> list[frozenset[MessageQueue]]:
        """What each member holds of the topic."""

    def mark(self) -> None:
        """Forget the first deliveries."""

    def firsts(self) -> list[dict[MessageQueue, int]]:
        """When each queue delivered its first message since the mark, by member (ms)."""

    def close(self) -> None:
        """Let the members leave; the process goes on."""

    def kill(self) -> None:
        """End the process with SIGKILL."""

    def end(self) -> None:
        """End the process."""


class PythonProcess:
    """Ours."""

    def __init__(self, nameserver: str, group: str, topic: str, *, ordered: bool) -> None:
        kind = "ordered" if ordered else "concurrent"
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), nameserver, group, topic, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, op: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def rehearse(self) -> None:
        self._ask("rehearse")

    def open(self, count: int) -> None:
        self._ask("open", count=count)

    def owned(self) -> list[frozenset[MessageQueue]]:
        return [frozenset(map(parse_queue, paths)) for paths in self._ask("owned")]

    def mark(self) -> None:
        self._ask("mark")

    def firsts(self) -> list[dict[MessageQueue, int]]:
        return [
            {parse_queue(path): at_ms for path, at_ms in member.items()}
            for member in self._ask("firsts")
        ]

    def close(self) -> None:
        self._ask("close")

    def kill(self) -> None:
        self._process.kill()
        self._clean_up()

    def end(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._clean_up()

    def _clean_up(self) -> None:
        self._process.wait(30.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class JavaProcess:
    """Java's."""

    def __init__(self, nameserver: str, group: str, topic: str, *, ordered: bool) -> None:
        # The full compiler, as users have it; tests do with the quick one.
        self._peer = JavaPeer(nameserver, version="5.5.0", heap_mb=512, jvm_flags=()).start()
        self._group, self._topic, self._ordered = group, topic, ordered
        self._members: list[JavaPushConsumer] = []

    def _join(self, group: str) -> JavaPushConsumer:
        return self._peer.push_consumer(
            group,
            self._topic,
            ordered=self._ordered,
            consume_from="CONSUME_FROM_LAST_OFFSET",
            report="count",
            firsts=True,
        )

    def rehearse(self) -> None:
        with self._join(f"{self._group}-rehearsal-{id(self)}") as member:
            wait_until(lambda: bool(member.first_deliveries()))

    def open(self, count: int) -> None:
        self._members += [self._join(self._group) for _ in range(count)]

    def owned(self) -> list[frozenset[MessageQueue]]:
        return [
            frozenset(queue for queue in member.owned() if queue.topic == self._topic)
            for member in self._members
        ]

    def mark(self) -> None:
        for member in self._members:
            member.mark()

    def firsts(self) -> list[dict[MessageQueue, int]]:
        return [member.first_deliveries() for member in self._members]

    def close(self) -> None:
        while self._members:
            self._members.pop().stop()

    def kill(self) -> None:
        self._members.clear()
        self._peer.kill()

    def end(self) -> None:
        self._peer.stop()
