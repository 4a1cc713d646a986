"""The members of the demo's group: Python ones in processes of their own, a Java one in a JVM."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gimbalmq.cli.demo.board import STRATEGY, Board
from gimbalmq.cli.demo.processes import ReportingProcess
from gimbalmq.cli.demo.reports import (
    Failed,
    Joining,
    Leaving,
    Owned,
    Rebalanced,
    Received,
    Report,
)
from gimbalmq.errors import EngineError, GimbalError

if TYPE_CHECKING:
    from gimbalmq.testing.actors import JavaPushConsumer
    from gimbalmq.testing.peers import JavaPeer

__all__ = ["JavaMember", "PythonMember"]

_LEAVE_LIMIT_S: Final = 20.0
_LOOK_INTERVAL_S: Final = 0.03
_PERSIST_OFFSETS_MS: Final = 1000
_ADDRESS: Final = "127.0.0.1"


class PythonMember:
    """A process that runs `PushConsumer`; the board hears what it says."""

    language = "python"

    def __init__(
        self, name: str, *, nameserver: str, group: str, topic: str, board: Board, logs: Path
    ) -> None:
        self.name = name
        self._board = board
        self._failure: str | None = None
        self._process = ReportingProcess(
            name,
            "gimbalmq.cli.demo.member",
            (nameserver, group, topic, name),
            log=logs / f"{name}.log",
            on_report=self._heard,
        )

    def start(self) -> None:
        """Start the process, which joins the group by itself."""
        self._process.start()

    def check(self) -> None:
        """EngineError when it failed or ended by itself."""
        if self._failure is not None:
            raise EngineError(f"{self.name} could not go on: {self._failure}")
        self._process.check()

    def kill(self) -> None:
        """SIGKILL: no drain, no commit, no good-bye."""
        self._board.gone(self.name, "killed", time.monotonic())
        self._process.kill()

    def leave(self) -> None:
        """Have it drain, commit, leave the group and end."""
        code = self._process.finish(_LEAVE_LIMIT_S)
        if code:
            raise EngineError(
                f"{self.name} did not leave cleanly (exit code {code}): "
                f"{self._failure or self._process.last_words()}"
            )

    def stop(self) -> None:
        """Make sure that it is gone."""
        if self._process.running:
            self._process.kill()

    def _heard(self, report: Report) -> None:
        match report:
            case Joining(at=at, client_id=client_id):
                self._board.joining(self.name, self.language, client_id, at)
            case Owned(at=at, queues=queues):
                self._board.owns(self.name, queues, at)
            case Received(at=at, key=key, queue=queue):
                self._board.received(self.name, key, queue, at)
            case Rebalanced(at=at, trigger=trigger):
                self._board.rebalanced(self.name, trigger, at)
            case Leaving(at=at):
                self._board.gone(self.name, "left", at)
            case Failed(message=message):
                self._failure = message
            case _:
                raise AssertionError(f"a member does not report {report}")


class JavaMember:
    """RocketMQ's own Java consumer; asked again and again what it owns."""

    language = "java"

    def __init__(
        self, name: str, *, nameserver: str, version: str, group: str, topic: str, board: Board
    ) -> None:
        self.name = name
        self._nameserver = nameserver
        self._version = version
        self._group = group
        self._topic = topic
        self._board = board
        self._peer: JavaPeer | None = None
        self._opener = threading.Thread(target=self._open, name=f"open {name}", daemon=True)
        self._looker = threading.Thread(target=self._look, name=f"watch {name}", daemon=True)
        self._consumer: JavaPushConsumer | None = None
        self._ended = threading.Event()
        self._failure: GimbalError | None = None

    def prepare(self) -> None:
        """Start its JVM, which takes seconds; it is no member yet. Returns at once."""
        self._opener.start()

    def start(self) -> None:
        """Join the group."""
        self._opener.join()
        self.check()
        assert self._peer is not None
        # Java builds the id of a client of these two.
        self._board.joining(self.name, self.language, f"{_ADDRESS}@{self.name}", time.monotonic())
        self._consumer = self._peer.push_consumer(
            self._group,
            self._topic,
            allocation=STRATEGY,
            report="brief",
            instance=self.name,
            client_ip=_ADDRESS,
            persist_offsets_ms=_PERSIST_OFFSETS_MS,
        )
        self._looker.start()

    def check(self) -> None:
        """The error that stopped it, if any."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Leave the group and end the JVM."""
        self._ended.set()
        for thread in (self._opener, self._looker):
            if thread.ident is not None:
                thread.join()
        if self._peer is not None:
            self._peer.stop()

    def _open(self) -> None:
        from gimbalmq.testing.peers import JavaPeer

        self._peer = JavaPeer(self._nameserver, version=self._version)
        try:
            self._peer.start()
        except GimbalError as error:
            self._failure = error

    def _look(self) -> None:
        consumer, seen = self._consumer, 0
        assert consumer is not None
        before = None
        while not self._ended.wait(_LOOK_INTERVAL_S):
            try:
                owned = consumer.owned()
            except GimbalError as error:
                self._failure = error
                return
            now = time.monotonic()
            queues = frozenset(queue for queue in owned if queue.topic == self._topic)
            if queues != before:
                self._board.owns(self.name, queues, now)
                before = queues
            received = consumer.received()
            for message in received[seen:]:
                key = message.keys or message.message_id
                self._board.received(self.name, key, message.queue, now)
            seen = len(received)
