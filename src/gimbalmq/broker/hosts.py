"""Where the servers of a cluster run: in one thread of this process, or in processes of their own.

Both offer the same: start, stop, kill. A thread is quick to start and easy to debug; a process can
be killed and frozen for real.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

from gimbalmq.broker.plans import Plan, Service, encode_plan
from gimbalmq.errors import ConfigurationError, EngineError

__all__ = ["Host", "LoopHost", "ProcessHost"]

_Result = TypeVar("_Result")

_STOP_S: Final = 20.0
#: What a server's process writes when it serves.
READY: Final = b"ready\n"


class Host(Protocol):
    """Runs servers by name."""

    def start(self, plan: Plan) -> None:
        """Start a server and wait until it serves."""

    def stop(self, name: str) -> None:
        """Stop a server cleanly; harmless when it does not run."""

    def kill(self, name: str) -> None:
        """End a server as a crash would."""

    def pause(self, name: str) -> None:
        """Freeze a server."""

    def resume(self, name: str) -> None:
        """Let a frozen server go on."""

    def is_running(self, name: str) -> bool:
        """Whether a server runs."""

    def pid(self, name: str) -> int:
        """Id of the process that a server runs in."""

    def check(self, name: str) -> None:
        """EngineError when a server that was not stopped or killed does not run."""

    def close(self) -> None:
        """End the host; its servers are stopped already."""


class LoopHost:
    """One event loop in one thread."""

    def __init__(self, start_timeout_s: float) -> None:
        self._start_timeout_s = start_timeout_s
        self._services: dict[str, Service] = {}
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to stop its cluster must still be able to end.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="gimbalmq-cluster", daemon=True
        )
        self._thread.start()

    def start(self, plan: Plan) -> None:
        """Start a server and wait until it serves."""

        async def begin() -> Service:
            service = plan.build()
            await service.start()
            return service

        self._services[plan.name] = self._run(begin(), self._start_timeout_s)

    def stop(self, name: str) -> None:
        """Stop a server cleanly; harmless when it does not run."""
        service = self._services.pop(name, None)
        if service is not None:
            self._run(service.stop(), _STOP_S)

    def kill(self, name: str) -> None:
        """End a server as a crash would, as far as a thread can."""
        service = self._services.pop(name, None)
        if service is not None:
            self._run(service.crash(), _STOP_S)

    def pause(self, name: str) -> None:
        """A thread cannot be frozen alone."""
        raise ConfigurationError(
            f"'{name}' runs in a thread of this process and cannot be frozen: use processes=True"
        )

    def resume(self, name: str) -> None:
        """A thread cannot be frozen alone."""
        self.pause(name)

    def is_running(self, name: str) -> bool:
        """Whether a server runs."""
        return name in self._services

    def pid(self, name: str) -> int:
        """Our own process."""
        del name
        return os.getpid()

    def check(self, name: str) -> None:
        """A server in a thread does not end by itself."""
        if not self._thread.is_alive():
            raise EngineError(f"the thread of '{name}' has ended; see the log")

    def service(self, name: str) -> Service:
        """The running server, for tests that look inside."""
        return self._services[name]

    def close(self) -> None:
        """End the loop and its thread."""
        self._run(self._loop.shutdown_asyncgens(), _STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _Result], timeout_s: float) -> _Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            raise EngineError(f"a server did not do its part within {timeout_s:g} s") from error


class ProcessHost:
    """One process per server, each running `gimbalmq.broker.process`."""

    def __init__(self, start_timeout_s: float) -> None:
        self._start_timeout_s = start_timeout_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, plan: Plan) -> None:
        """Start a server and wait until it serves."""
        plan.release_listener()
        process = subprocess.Popen(
            [sys.executable, "-m", "gimbalmq.broker.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # Ctrl-C reaches only us, and we stop the servers in the right order.
            process_group=0,
        )
        self._processes[plan.name] = process
        assert process.stdin is not None
        assert process.stdout is not None
        # The process ends when this pipe closes, so none outlives us.
        process.stdin.write(encode_plan(plan) + b"\n")
        process.stdin.flush()
        watchdog = threading.Timer(self._start_timeout_s, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        if line != READY:
            self.kill(plan.name)
            raise EngineError(
                f"the process of '{plan.name}' did not start: its error output says why"
            )

    def stop(self, name: str) -> None:
        """Stop a server cleanly (SIGTERM, SIGKILL if it takes too long)."""
        process = self._processes.get(name)
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            deadline = time.monotonic() + _STOP_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
        self.kill(name)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._process(name).send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._process(name).send_signal(signal.SIGCONT)

    def is_running(self, name: str) -> bool:
        """Whether a server runs."""
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def check(self, name: str) -> None:
        """EngineError when the process has ended by itself."""
        process = self._processes.get(name)
        if process is not None and process.poll() is not None:
            raise EngineError(f"the process of '{name}' has ended with code {process.returncode}")

    def pid(self, name: str) -> int:
        """Process id."""
        return self._process(name).pid

    def close(self) -> None:
        """End what is left."""
        for name in list(self._processes):
            self.kill(name)

    def _process(self, name: str) -> subprocess.Popen[bytes]:
        process = self._processes.get(name)
        if process is None:
            raise EngineError(f"'{name}' does not run: restart it first")
        return process
