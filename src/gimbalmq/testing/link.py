"""Requests and events over the pipes of a peer process: one JSON object per line.

Decides which answer belongs to which request and what happens to those that wait when the process
dies. Knows nothing of what the requests mean.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import msgspec

from gimbalmq.errors import BrokerError, EngineError
from gimbalmq.testing.processes import JavaProcess, last_lines

__all__ = ["Event", "Link"]


class Event(msgspec.Struct, frozen=True):
    """One line from the process. An answer has `id`, a report of its own has `event`."""

    id: int = 0
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    type: str = ""
    code: int | None = None
    event: str = ""
    actor: str = ""
    at_ms: int = 0
    accepted: bool = True
    messages: msgspec.Raw = msgspec.Raw(b"[]")
    keys: str | None = None
    answer: str = ""


class Link:
    """The Python end of the pipes of `process`, which must be running with its output piped."""

    def __init__(self, process: JavaProcess, on_event: Callable[[Event], None]) -> None:
        self._process = process
        self._on_event = on_event
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # Requests without an answer yet, by number; None once the process has ended.
        self._waiting: dict[int, Future[Event]] | None = {}
        # A daemon: it ends with the pipe, and the pipe ends with the process.
        self._reader = threading.Thread(target=self._read, name=f"link-{process.name}", daemon=True)
        self._reader.start()

    def request(self, op: str, actor: str, *, timeout_s: float, **fields: Any) -> msgspec.Raw:
        """Send a request and return its answer, still encoded.

        Raises BrokerError when a server refused, EngineError when the Java side failed otherwise,
        ended, or gave no answer in time.
        """
        number = next(self._numbers)
        future: Future[Event] = Future()
        line = msgspec.json.encode({"id": number, "op": op, "actor": actor} | fields) + b"\n"
        with self._lock:
            if self._waiting is None:
                raise self._ended(op)
            self._waiting[number] = future
            try:
                self._write(line)
            except (BrokenPipeError, ValueError) as error:  # ValueError: closed by us
                raise self._ended(op) from error
        try:
            event = future.result(timeout=timeout_s)
        except FutureTimeout:
            raise EngineError(
                f"{self._process.name} gave no answer to '{op}' within {timeout_s:g} s"
            ) from None
        if event.error is None:
            return event.ok
        text = f"{self._process.name} could not {op}: {event.error} ({event.type})"
        if event.code is not None and event.code > 0:
            raise BrokerError(text, code=event.code, remark=event.error)
        raise EngineError(text)

    def join(self, timeout_s: float) -> None:
        """Wait until the process has closed its output."""
        self._reader.join(timeout_s)

    def _write(self, line: bytes) -> None:
        pipe = self._process.pipes.stdin
        assert pipe is not None
        pipe.write(line)
        pipe.flush()

    def _read(self) -> None:
        pipe = self._process.pipes.stdout
        assert pipe is not None
        decode = msgspec.json.Decoder(Event).decode
        with pipe:
            for line in pipe:
                if not line.endswith(b"\n"):
                    break  # half a line, which one that was killed may leave
                self._dispatch(decode(line))
        with self._lock:
            waiting, self._waiting = self._waiting or {}, None
        for future in waiting.values():
            future.set_exception(self._ended("answer"))

    def _dispatch(self, event: Event) -> None:
        if event.event:
            self._on_event(event)
            return
        with self._lock:
            future = (self._waiting or {}).pop(event.id, None)
        # None: the one who asked gave up.
        if future is not None:
            future.set_result(event)

    def _ended(self, op: str) -> EngineError:
        return EngineError(
            f"{self._process.name} ended (exit code {self._process.exit_code}) before it could {op}. "
            f"The end of its log:\n{last_lines(self._process.log_text())}"
        )
