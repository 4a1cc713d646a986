"""A Python child process that reports line by line, and never outlives the demo."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gimbalmq.cli.demo.reports import Report, decode
from gimbalmq.errors import EngineError, StateError

__all__ = ["ReportingProcess"]

_LAST_WORDS_CHARS = 2000


class ReportingProcess:
    """Runs `python -m module arguments`; each report goes to `on_report`, on a thread of its own.

    The child is its own process group, so that Ctrl-C reaches only the demo, and ends when its
    standard input closes. Its standard error goes to `log`.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        log: Path,
        on_report: Callable[[Report], None],
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = log
        self._on_report = on_report
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, name=f"read {self.name}", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """EngineError, with its last words, when it was started and has ended."""
        if self._process is not None and not self.running:
            raise EngineError(f"{self.name} ended by itself. Its last words:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        try:
            return self._log.read_text("utf-8", errors="replace")[-_LAST_WORDS_CHARS:].strip()
        except FileNotFoundError:
            return ""

    def kill(self) -> None:
        """SIGKILL, as `kill -9` does; returns when it is gone and all it said was heard."""
        self._started().kill()
        self._finish()

    def say(self, line: bytes) -> None:
        """Write a line to its standard input; when it is gone, `check` and `wait` tell why."""
        pipe = self._started().stdin
        assert pipe is not None
        if not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(line)
                pipe.flush()

    def finish(self, timeout_s: float) -> int:
        """Close its input, and wait for its end; its whole group is killed after `timeout_s`."""
        process = self._started()
        assert process.stdin is not None
        # A child that is gone cannot be told; that is what it was to be.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code; its group is killed after `timeout_s`."""
        process = self._started()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # Gone in the meantime is as good.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._finish()
        return process.returncode

    def _finish(self) -> None:
        process = self._started()
        process.wait()
        if self._reader is not None:
            self._reader.join(5.0)
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def _read(self) -> None:
        pipe = self._started().stdout
        assert pipe is not None
        with pipe:
            for line in pipe:
                try:
                    report = decode(line)
                except msgspec.MsgspecError:
                    # Words of a library on standard output.
                    continue
                self._on_report(report)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise StateError(f"{self.name} was not started")
        return self._process
