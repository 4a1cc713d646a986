"""One child of a worker: a process that runs one consumer.

    python -m gimbalmq.cli.worker.child SETUP

Gets orders on its standard input and ends when that closes, so it never outlives its worker. A
SIGTERM of its own lets it drain as well.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq import metrics
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
from gimbalmq.errors import GimbalError, StateError

__all__ = ["main"]

_EXIT_FAILURE: Final = 2
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
        self._consumer: PushConsumer | None = None

    def run(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._ended.set())
        # Ctrl-C is for the worker, which then tells its children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        try:
            consumer = load(self._setup.target)
        except GimbalError as error:
            return self._fail(Failure.UNUSABLE, error)
        if self._ended.is_set():
            return 0
        try:
            consumer.start()
        except GimbalError as error:
            return self._fail(Failure.UNREACHABLE if error.retryable else Failure.UNUSABLE, error)
        self._consumer = consumer
        self._tell(Joined(consumer.group, consumer.client_id))
        self._ended.wait()
        consumer.stop(self._setup.drain_s)
        return 0

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
                    self._tell(_status(self._consumer, question))
        self._ended.set()

    def _fail(self, failure: Failure, error: GimbalError) -> int:
        self._tell(Failed(failure, str(error)))
        return _EXIT_FAILURE

    def _tell(self, report: Report) -> None:
        line = encode(report)
        with self._write_lock:
            while line:
                line = line[os.write(self._setup.report_fd, line) :]


def _status(consumer: PushConsumer | None, question: int) -> Status:
    if consumer is None:
        return Status(question, True, False, ("the consumer is starting",), 0, ())
    families = tuple(metrics.collect())
    try:
        queues = len(consumer.assignment())
    except StateError:
        queues = 0  # on its way out, which the probe says
    probe = consumer.probe()
    return Status(question, probe.live, probe.ready, probe.reasons, queues, families)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
