"""A child's process: starts it, hands it orders, passes its reports and its output on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO

import msgspec

from gimbalmq.cli.worker.reports import Order, Report, Setup, encode, read_report

__all__ = ["ChildProcess"]


class ChildProcess:
    """One start of one child.

    It is its own process group, so that Ctrl-C reaches only the worker. `on_report`, `on_line`
    (with the stream's name) and `on_exit` are called on threads of its own; the exit comes after
    every report.
    """

    def __init__(
        self,
        setup: Setup,
        environ: Mapping[str, str],
        *,
        on_report: Callable[[Report], None],
        on_line: Callable[[str, str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self._on_report, self._on_line, self._on_exit = on_report, on_line, on_exit
        self._write_lock = threading.Lock()
        read_end, write_end = os.pipe()
        try:
            arguments = msgspec.json.encode(msgspec.structs.replace(setup, report_fd=write_end))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gimbalmq.cli.worker.child", arguments.decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(write_end,),
                env=dict(environ),
                process_group=0,
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._reports = os.fdopen(read_end, "rb")
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            self._thread(f"stdout of {setup.number}", self._pass_on, process.stdout, "stdout"),
            self._thread(f"stderr of {setup.number}", self._pass_on, process.stderr, "stderr"),
        ]
        self._watcher = self._thread(f"child {setup.number}", self._watch)

    @staticmethod
    def _thread(name: str, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        thread.start()
        return thread

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def order(self, order: Order) -> None:
        """Tell it something; a child that is gone hears nothing, and its exit is on its way."""
        pipe = self._process.stdin
        assert pipe is not None
        with self._write_lock, contextlib.suppress(BrokenPipeError, ValueError):
            pipe.write(encode(order))
            pipe.flush()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def _watch(self) -> None:
        with self._reports:
            for line in self._reports:
                self._on_report(read_report(line))
        code = self._process.wait()
        # Its last words first; a grandchild that holds the pipes open is not waited for.
        for reader in self._readers:
            reader.join(1.0)
        pipe = self._process.stdin
        assert pipe is not None
        with self._write_lock, contextlib.suppress(BrokenPipeError):
            pipe.close()
        self._on_exit(code)

    def _pass_on(self, pipe: IO[bytes], name: str) -> None:
        with pipe:
            for line in pipe:
                self._on_line(name, line.decode(errors="replace").rstrip("\n"))
