"""Java clients of RocketMQ, driven from Python: what interoperability tests hold against ours.

A `JavaPeer` is one Java process. It hosts any number of producers, consumers and administrators,
so that a group of many members fits on a small machine; a member that is to be killed gets a peer
of its own. The protocol between the two processes is described in `java/Peer.java`; `link`
carries it, `actors` wraps what the process hosts.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import msgspec

from gimbalmq.errors import EngineError, StateError
from gimbalmq.testing.actors import (
    Actor,
    Allocation,
    JavaAdmin,
    JavaLitePull,
    JavaProducer,
    JavaPushConsumer,
)
from gimbalmq.testing.classes import class_path
from gimbalmq.testing.jars import VERSIONS
from gimbalmq.testing.jvm import find_java
from gimbalmq.testing.link import Event, Link
from gimbalmq.testing.processes import QUICK_START_FLAGS, JavaProcess, last_lines

__all__ = ["JavaPeer"]

_READY_LIMIT_S = 60.0
_OPEN_LIMIT_S = 90.0
_numbers = itertools.count(1)

A = TypeVar("A", bound=Actor)


class _Described(msgspec.Struct, frozen=True):
    client_id: str


class JavaPeer:
    """A Java process with RocketMQ's client `version`, connected to `nameserver`.

    Used as a context manager it starts and stops itself:

        with JavaPeer("127.0.0.1:9876") as peer:
            consumer = peer.push_consumer("billing", "orders")
            peer.producer("shop").send(Message("orders", b"paid"))
            consumer.wait_received(1)

    Options of clients that are not named here (`tls`, `access_key`, `secret_key`, `namespace`,
    `unit`, `poll_nameserver_ms`, `heartbeat_ms`, `persist_offsets_ms`; `trace` of producers and
    push consumers) are passed on as they are; `client_options` are those of every client that does
    not have its own.
    """

    def __init__(
        self,
        nameserver: str,
        *,
        version: str = VERSIONS[0],
        heap_mb: int = 256,
        jvm_flags: Sequence[str] = QUICK_START_FLAGS,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.nameserver = nameserver
        self.version = version
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._client_options = dict(client_options or {})
        self._actors: dict[str, Actor] = {}
        self._ready = threading.Event()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: JavaProcess | None = None
        self._link: Link | None = None

    def start(self) -> Self:
        """Start the process and wait until it takes requests."""
        if self._process is not None:
            raise StateError("this Java peer was already started: make a new one")
        java, classes = find_java().java, class_path(self.version)
        self._folder = tempfile.TemporaryDirectory(
            prefix="gimbalmq-peer-", ignore_cleanup_errors=True
        )
        home = Path(self._folder.name)
        self._process = JavaProcess(
            f"Java peer {next(_numbers)}",
            [
                *(str(java), f"-Xmx{self._heap_mb}m", f"-Duser.home={home}"),
                *(*self._jvm_flags, "-cp", classes, "gimbalmq.peer.Peer"),
            ],
            log=home / "stderr.log",
            output=subprocess.PIPE,
        )
        self._process.start()
        self._link = Link(self._process, self._on_event)
        if not self._ready.wait(_READY_LIMIT_S):
            log = last_lines(self._process.log_text())
            self.kill()
            raise EngineError(f"a Java peer did not start. The end of its log:\n{log}")
        return self

    @property
    def pid(self) -> int:
        """Process id."""
        return self._running().pid

    def stop(self, *, timeout_s: float = 15.0) -> None:
        """Close every client cleanly and end the process; SIGKILL after `timeout_s`."""
        if self._process is None:
            return
        if self._process.running:
            self._process.resume()
            # The end of its input is what the process waits for.
            pipe = self._process.pipes.stdin
            assert pipe is not None
            pipe.close()
        self._process.wait_stopped(timeout_s=timeout_s)
        self._clean_up()

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL): no client says good-bye."""
        if self._process is not None:
            self._process.kill()
            self._clean_up()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP), as a long garbage collection would."""
        self._running().pause()

    def resume(self) -> None:
        """Let a frozen process go on."""
        self._running().resume()

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def producer(
        self, group: str, *, transactional: bool = False, timeout_ms: int = 10_000, **options: Any
    ) -> JavaProducer:
        """Open a producer. Java's own time limit of a send is 3 s, too short for a busy machine."""
        options |= {"transactional": transactional, "timeout_ms": timeout_ms}
        return self._open(JavaProducer, "producer", group=group, **options)

    def push_consumer(
        self,
        group: str,
        topic: str,
        *,
        tags: str = "*",
        sql: str | None = None,
        allocation: Allocation = "AVG",
        ordered: bool = False,
        broadcasting: bool = False,
        batch_size: int = 1,
        consume_from: str = "CONSUME_FROM_FIRST_OFFSET",
        fail_times: int = 0,
        report: str = "full",
        **options: Any,
    ) -> JavaPushConsumer:
        """Open a push consumer; it is a started member of the group when this returns.

        `fail_times` makes its listener refuse each message that often, `retry_level` says with
        which delay it then comes again, `max_reconsume_times` how often, `sleep_ms` makes it slow.
        `drain_ms` is how long a stop waits for listeners; Java's 0 interrupts them, and what they
        had is not committed, although it is reported here.
        `report` is `full`, `brief` (no body and properties), `timed` (as `brief`, and when the
        listener was done) or `count` (for many messages: only counts them).
        `instance` sets Java's instance name, `client_ip` the address part of the client id;
        allocation strategies take `virtual_nodes`, `rooms` and `fixed_queues`; `firsts` notes when
        each queue delivered first.
        """
        options |= {"topic": topic, "tags": tags, "sql": sql, "allocation": allocation}
        options |= {"ordered": ordered, "broadcasting": broadcasting, "batch_size": batch_size}
        options |= {"consume_from": consume_from, "fail_times": fail_times, "report": report}
        return self._open(JavaPushConsumer, "push", group=group, **options)

    def lite_pull(
        self,
        group: str,
        topic: str | None = None,
        *,
        tags: str = "*",
        allocation: Allocation = "AVG",
        auto_commit: bool = False,
        consume_from: str = "CONSUME_FROM_FIRST_OFFSET",
        **options: Any,
    ) -> JavaLitePull:
        """Open a lite pull consumer; without a topic, give it queues with `assign`."""
        options |= {"topic": topic, "tags": tags, "allocation": allocation}
        options |= {"auto_commit": auto_commit, "consume_from": consume_from}
        return self._open(JavaLitePull, "litepull", group=group, **options)

    def admin(self, **options: Any) -> JavaAdmin:
        """Open RocketMQ's administration client."""
        return self._open(JavaAdmin, "admin", **options)

    def request(self, op: str, actor: str, *, timeout_s: float, **fields: Any) -> msgspec.Raw:
        """Send a raw request to something that the process hosts."""
        self._running()
        assert self._link is not None
        return self._link.request(op, actor, timeout_s=timeout_s, **fields)

    def _open(self, kind: type[A], wire_kind: str, **fields: Any) -> A:
        name = f"{wire_kind}-{uuid4().hex[:12]}"
        # Distinct instance names: clients of one process that share one also share connections.
        fields = {"instance": name, "client_ip": "127.0.0.1"} | self._client_options | fields
        actor = kind(self, name)
        # Known before it is opened: a consumer reports messages before the answer comes.
        self._actors[name] = actor
        raw = self.request(
            "open",
            name,
            timeout_s=_OPEN_LIMIT_S,
            kind=wire_kind,
            nameserver=self.nameserver,
            **fields,
        )
        actor.client_id = msgspec.json.decode(raw, type=_Described).client_id
        return actor

    def _on_event(self, event: Event) -> None:
        if event.event == "ready":
            self._ready.set()
            return
        actor = self._actors.get(event.actor)
        if actor is not None:
            actor.on_event(event)

    def _running(self) -> JavaProcess:
        if self._process is None:
            raise StateError("this Java peer was not started: call start() or use it with 'with'")
        return self._process

    def _clean_up(self) -> None:
        if self._link is not None:
            self._link.join(5.0)
        if self._folder is not None:
            self._folder.cleanup()
