"""Runs one Java process: starts it, waits until it is ready, stops it, leaves none behind.

Every process gets a pipe as standard input and ends when that pipe closes, so it cannot outlive
this Python process, however that one ends (even by SIGKILL). Each is also its own process group:
Ctrl-C reaches only the parent, which then stops its processes in the right order; and when the
parent dies the kernel wakes those that were paused, so that they notice the closed pipe.
Knows nothing of RocketMQ.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from gimbalmq.errors import EngineError, StateError

__all__ = ["QUICK_START_FLAGS", "JavaProcess", "last_lines"]

#: For short-lived processes on few cores: the first compiler stage only, one collector thread.
QUICK_START_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

#: Settings of the surrounding shell that would change how RocketMQ starts.
_DROPPED_VARIABLES = frozenset({"NAMESRV_ADDR", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"})

#: An exception that ends something, or its cause; those that only came on top of it are indented.
_REASON = re.compile(r'(Exception in thread "[^"]*" |Caused by: )?[\w$]+(\.[\w$]+)+(: |$)')
_REASONS_SHOWN = 5


@contextlib.contextmanager
def _signals_put_off() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the block.

    A handler that raises in the middle of starting a process would leave one that nobody knows.
    Blocking the signals would not do: the new process would inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread only.
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for arrived in came:
            signal.raise_signal(arrived)


class JavaProcess:
    """A Java program whose output goes to `log`; may be started again after it ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
        output: int | None = None,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._environ = dict(environ or {})
        # Where standard output goes; None: to the log, together with standard error.
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        # Where in the log the latest run began.
        self._log_from = 0

    @property
    def pid(self) -> int:
        """Process id of the latest run; raises StateError before the first."""
        return self._started().pid

    @property
    def pipes(self) -> subprocess.Popen[bytes]:
        """The process with its standard input, and its output when that was asked for."""
        return self._started()

    def start(self) -> None:
        """Start it; returns at once."""
        if self.running:
            raise StateError(f"{self.name} is already running (pid {self.pid})")
        self._close_input()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if k not in _DROPPED_VARIABLES}
        with self._log.open("ab") as log, _signals_put_off():
            self._log_from = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log if self._output is None else self._output,
                stderr=log,
                env=inherited | self._environ,
                process_group=0,
            )

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the latest run ended, None while it runs; negative: the signal that ended it."""
        return self._started().poll()

    def log_text(self) -> str:
        """What the latest run wrote to the log so far."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_from)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def wait_for_line(self, text: str, *, timeout_s: float) -> None:
        """Wait until the log says `text`; EngineError with the end of the log when it does not."""
        deadline = time.monotonic() + timeout_s
        while True:
            # Asked before the log is read, so that what it wrote last is read when it has ended.
            running = self.running
            if text in self.log_text():
                return
            if not running:
                raise EngineError(
                    f"{self.name} did not start (exit code {self.exit_code}). "
                    f"The end of {self._log}:\n{last_lines(self.log_text())}"
                )
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{self.name} was not ready after {timeout_s:g} s. "
                    f"The end of {self._log}:\n{last_lines(self.log_text())}"
                )
            time.sleep(0.05)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; StateError when it does not run."""
        if not self.running:
            raise StateError(f"{self.name} is not running")
        self._started().send_signal(number)

    def pause(self) -> None:
        """Freeze it (SIGSTOP); every thread stands still when this returns."""
        self.send_signal(signal.SIGSTOP)
        # WNOWAIT: only look, so that an end is still there for those who wait for it.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on after `pause` (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL) and wait until it is gone. Nothing when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_input()

    def ask_to_stop(self) -> None:
        """Begin a clean stop: wake it if it is paused, then SIGTERM. Does not wait."""
        if self.running:
            self.resume()
            self.send_signal(signal.SIGTERM)

    def wait_stopped(self, *, timeout_s: float) -> None:
        """Wait for the end of a clean stop; SIGKILL after `timeout_s`."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_input()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise StateError(f"{self.name} was not started yet")
        return self._process

    def _close_input(self) -> None:
        # Standard output, when piped, is closed by the one who reads it.
        if self._process is not None and self._process.stdin is not None:
            # Bytes that the dead process never read are of no use to anybody.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


def last_lines(text: str, count: int = 15) -> str:
    """The end of a log, without the noise of RocketMQ's own log set-up, indented.

    A Java trace may be longer than that: the lines further up that begin one, or name its cause,
    stand in front.
    """
    kept = [line for line in text.splitlines() if line.strip() and "|-" not in line]
    reasons = list(dict.fromkeys(filter(_REASON.match, kept[:-count])))[-_REASONS_SHOWN:]
    shown = [*reasons, *(["..."] if reasons else []), *kept[-count:]]
    return "\n".join(f"    {line[:400]}" for line in shown) or "    (nothing was written)"
