"""An event loop on a thread of its own, for listeners that are coroutine functions.

A worker that gets a coroutine listener runs it on the loop and waits for it, so there are never
more coroutines under way than workers, and a coroutine's verdict, its place in the order of a
queue, and its part in draining are those of any other listener.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

__all__ = [
    "CoroutineListener",
    "CoroutineThread",
    "contained",
    "coroutine_stack",
    "is_coroutine_listener",
    "taken_out",
]

CoroutineListener = Callable[[Any], Coroutine[Any, Any, object]]


def is_coroutine_listener(listener: Callable[[Any], object]) -> bool:
    """Whether calling it makes a coroutine: `async def`, a partial of it, or an object's.

    >>> async def listen(message): ...
    >>> is_coroutine_listener(listen), is_coroutine_listener(print)
    (True, False)
    """
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - it is its kind that matters
    )


def coroutine_stack(coroutine: Any) -> str:
    """Where a suspended coroutine is, from the outermost call to what it waits for."""
    awaited = coroutine
    lines: list[str] = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        lines += traceback.format_stack(frame, 1)
        awaited = awaited.cr_await
    return "".join(lines) + (f"  waiting for {awaited!r}\n" if awaited is not None else "")


class CoroutineThread:
    """Runs coroutines for worker threads; started by the first that needs it."""

    def __init__(self, name: str) -> None:
        self._name = f"gimbalmq-{name}-loop"
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        #: What each worker thread waits for.
        self._waited_for: dict[int, Coroutine[Any, Any, object]] = {}

    def blocking(self, listener: CoroutineListener) -> Callable[[Any], object]:
        """The listener as a plain one: it waits for the coroutine on the loop."""

        def call(messages: Any) -> object:
            return self.run(listener(messages))

        return call

    def run(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run a coroutine on the loop and wait for what it returns or raises."""
        try:
            loop = self._running_loop()
        except RuntimeError:
            coroutine.close()
            raise
        thread_id = threading.get_ident()
        self._waited_for[thread_id] = coroutine
        try:
            awaited = asyncio.run_coroutine_threadsafe(contained(coroutine), loop).result()
        finally:
            del self._waited_for[thread_id]
        return taken_out(*awaited)

    def stack_of(self, thread_id: int) -> str | None:
        """Where the coroutine is that a thread waits for; None when it waits for none."""
        awaited = self._waited_for.get(thread_id)
        return None if awaited is None else coroutine_stack(awaited)

    def stop(self) -> None:
        """Cancel what still runs and end the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).add_done_callback(
            lambda _done: loop.call_soon_threadsafe(loop.stop)
        )
        if thread is not threading.current_thread():
            thread.join(5.0)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise RuntimeError("the consumer has stopped: no coroutine is started any more")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def contained(awaited: Awaitable[object]) -> tuple[object, BaseException | None]:
    """What a coroutine returns, or raises that would end the loop and all who wait for it."""
    try:
        return await awaited, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


def taken_out(outcome: object, error: BaseException | None) -> object:
    """What was contained, on the thread that waited for it."""
    if error is not None:
        raise error
    return outcome


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    # A coroutine that does not let itself be cancelled is left behind with the loop.
    if others:
        await asyncio.wait(others, timeout=1.0)
