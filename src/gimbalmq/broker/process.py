"""The program of one server in a process of its own: `python -m gimbalmq.broker.process`.

Reads its plan from the first line of standard input, says when it serves, and ends at SIGTERM,
SIGINT or when standard input closes, so that it never outlives who started it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from gimbalmq.broker.plans import Plan, decode_plan

__all__ = ["main", "serve"]


async def serve(plan: Plan) -> None:
    """Run a server until it is told to end."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    service = plan.build()
    await service.start()

    def input_closed() -> None:
        if not os.read(descriptor, 1024):
            ended.set()

    descriptor = sys.stdin.fileno()
    loop.add_reader(descriptor, input_closed)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await ended.wait()
    loop.remove_reader(descriptor)
    await service.stop()


def main() -> None:
    """Read the plan and serve."""
    plan = decode_plan(sys.stdin.buffer.readline())
    asyncio.run(serve(plan))


if __name__ == "__main__":
    main()
