"""The program of one server in a process of its own: `python -m gimbalmq.broker.process`.

Reads its plan from the first line of standard input, says when it serves, and ends at SIGTERM,
SIGINT or when standard input closes, so that it never outlives who started it. `serve` alone is
for programs that have a plan already and end by signals only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from gimbalmq.broker.plans import Plan, decode_plan

__all__ = ["main", "serve"]


async def serve(plan: Plan, on_ready: Callable[[], None], *, ends_with: int | None = None) -> None:
    """Run a server until SIGTERM or SIGINT, or until the file descriptor `ends_with` closes."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    service = plan.build()
    await service.start()

    def read(descriptor: int) -> None:
        if not os.read(descriptor, 1024):
            ended.set()

    if ends_with is not None:
        loop.add_reader(ends_with, read, ends_with)
    on_ready()
    await ended.wait()
    if ends_with is not None:
        loop.remove_reader(ends_with)
    await service.stop()


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> None:
    """Read the plan and serve."""
    plan = decode_plan(sys.stdin.buffer.readline())
    asyncio.run(serve(plan, _say_ready, ends_with=sys.stdin.fileno()))


if __name__ == "__main__":
    main()
