"""One child of a worker: a process that runs one consumer.

    python -m gimbalmq.cli.worker.child SETUP

Gets orders on its standard input and ends when that closes, so it never outlives its worker. A
SIGTERM of its own lets it drain as well. How it is, is told by a thread of its own: a consumer that
does not answer must not keep the child from hearing that it is to end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq import aio, metrics
from gimbalmq.cli.worker.events import Failure
from gimbalmq.cli.worker.loading import load
from gimbalmq.cli.worker.reports import (
    Ask,
    DrainNow,
    Failed,
    HurryUp,
    Joined,
    Report,
    Setup,
    Status,
    encode,
    read_order,
)
from gimbalmq.client.naming import name_process
from gimbalmq.client.push_consumer import PushConsumer
from gimbalmq.client.stats import Probe
from gimbalmq.errors import GimbalError, StateError

__all__ = ["main"]

_log = logging.getLogger("gimbalmq.worker")

_EXIT_FAILURE: Final = 2
#: How long the consumer may take to say how it is; the worker waits a little longer.
_ANSWER_S: Final = 1.0
#: A child in a hurry still tries to store its offsets and to leave.
_HURRY_S: Final = 1.0


def main(arguments: Sequence[str]) -> int:
    """Run the consumer until told to stop."""
    setup = msgspec.json.decode(arguments[0], type=Setup)
    os.set_inheritable(setup.report_fd, False)
    here = str(Path.cwd())
    if not sys.path or sys.path[0] not in {"", here}:
        sys.path.insert(0, here)
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    name_process(setup.number, setup.stem)
    return _Child(setup).run()


class _Child:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._ended = threading.Event()
        self._write_lock = threading.Lock()
        self._consumer: PushConsumer | aio.PushConsumer | None = None
        self._questions: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._ended.set())
        # Ctrl-C is for the worker, which then tells its children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        threading.Thread(target=self._answer, name="answers", daemon=True).start()
        try:
            consumer = load(self._setup.target)
        except GimbalError as error:
            return self._fail(Failure.UNUSABLE, error)
        if self._ended.is_set():
            return 0
        try:
            if isinstance(consumer, aio.PushConsumer):
                asyncio.run(self._consume_on_loop(consumer))
            else:
                self._consume(consumer)
        except GimbalError as error:
            return self._fail(Failure.UNREACHABLE if error.retryable else Failure.UNUSABLE, error)
        return 0

    def _consume(self, consumer: PushConsumer) -> None:
        consumer.start()
        self._joined(consumer)
        self._ended.wait()
        consumer.stop(self._setup.drain_s)

    async def _consume_on_loop(self, consumer: aio.PushConsumer) -> None:
        await consumer.start()
        self._joined(consumer)
        await asyncio.to_thread(self._ended.wait)
        await consumer.stop(self._setup.drain_s)

    def _joined(self, consumer: PushConsumer | aio.PushConsumer) -> None:
        self._consumer = consumer
        self._tell(Joined(consumer.group, consumer.client_id))

    def _listen(self) -> None:
        # Unbuffered: the lock of a buffered reader, held here, would abort the interpreter's end.
        orders = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
        for line in orders:
            match read_order(line):
                case DrainNow():
                    self._ended.set()
                case HurryUp():
                    self._ended.set()
                    hurry = threading.Timer(_HURRY_S, os._exit, (0,))
                    hurry.daemon = True
                    hurry.start()
                case Ask(question):
                    self._questions.put(question)
        self._ended.set()

    def _answer(self) -> None:
        while True:
            question = self._questions.get()
            try:
                status = _status(self._consumer, question)
            except TimeoutError:
                # Its silence tells the worker, which knows for how long it has lasted.
                _log.warning("the consumer does not answer how it is")
            else:
                self._tell(status)

    def _fail(self, failure: Failure, error: GimbalError) -> int:
        self._tell(Failed(failure, str(error)))
        return _EXIT_FAILURE

    def _tell(self, report: Report) -> None:
        line = encode(report)
        with self._write_lock:
            while line:
                line = line[os.write(self._setup.report_fd, line) :]


def _status(consumer: PushConsumer | aio.PushConsumer | None, question: int) -> Status:
    """How the consumer is.

    Raises:
        TimeoutError: it does not answer.
    """
    if consumer is None:
        return Status(question, True, False, ("the consumer is starting",), 0, ())
    probe, queues = _look(consumer)
    families = tuple(metrics.collect()) if probe.answered else ()
    return Status(question, probe.live, probe.ready, probe.reasons, queues, families)


def _look(consumer: PushConsumer | aio.PushConsumer) -> tuple[Probe, int]:
    """The consumer's own view, and how many queues it has."""
    try:
        if isinstance(consumer, aio.PushConsumer):
            return consumer.from_thread(
                lambda: (consumer.probe(), len(consumer.assignment())), _ANSWER_S
            )
        # First: it says at once when nothing else would be answered.
        probe = consumer.probe(_ANSWER_S)
        return probe, len(consumer.assignment()) if probe.answered else 0
    except StateError:  # on its way out, which the probe says
        return consumer.probe(), 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
