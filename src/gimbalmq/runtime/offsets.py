"""Where a consumer keeps its offsets: at the brokers, or, when broadcasting, in a file.

The file is Java's: one document per client and group, with queues as keys. It is replaced by
rename, on a thread of its own, so that a slow disk does not hold up heartbeats.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from gimbalmq.errors import ConfigurationError, GimbalError, ProtocolError, TransportError
from gimbalmq.flows.offset import (
    OFFSET_TIMEOUT_S,
    StartFrom,
    hand_over,
    start_offset,
    starting_offset,
)
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.wire.bodies import decode_offset_file, encode_offset_file
from gimbalmq.wire.headers import update_offset_request

__all__ = ["BrokerOffsets", "LocalOffsets", "OffsetKeeper"]

_log = logging.getLogger("gimbalmq.consumer")

Found = Callable[[int | GimbalError], None]
Stored = Callable[[GimbalError | None], None]


class OffsetKeeper(Protocol):
    """Finds and stores the offsets of one group's member.

    `master` is the address of the queue's master, None while it has none: a slave has a copy of
    the offsets, which may be old, and what it is told stays with it.
    """

    def find(
        self, queue: MessageQueue, master: str | None, found: Found, *, new: bool = False
    ) -> None:
        """Where to start; `new` queues were added while this member was running."""

    def commit(self, queue: MessageQueue, master: str | None, offset: int) -> None:
        """Store progress; may be lost, since it is stored again."""

    def hand_over(
        self, queue: MessageQueue, master: str | None, offset: int, stored: Stored, *, force: bool
    ) -> None:
        """Store the last progress and say when that is done."""


class BrokerOffsets:
    """Offsets of a clustering group: each queue's on its broker."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        start: StartFrom,
        *,
        timeout_s: float = OFFSET_TIMEOUT_S,
    ) -> None:
        self._instance = instance
        self._group = group
        self._start = start
        self._timeout_s = timeout_s

    def find(
        self, queue: MessageQueue, master: str | None, found: Found, *, new: bool = False
    ) -> None:
        """The stored offset, or where the start policy says."""
        if master is None:
            found(_no_master(queue))
            return
        flow = start_offset(
            master, self._group, queue, self._start, new=new, timeout_s=self._timeout_s
        )
        self._instance.driver.spawn(flow, found)

    def commit(self, queue: MessageQueue, master: str | None, offset: int) -> None:
        """Store progress, one-way; while there is no master it waits for the next time."""
        if master is not None:
            request = update_offset_request(self._group, queue, offset, oneway=True)
            self._instance.driver.notify(master, request)

    def hand_over(
        self, queue: MessageQueue, master: str | None, offset: int, stored: Stored, *, force: bool
    ) -> None:
        """Store the last progress, unless the next owner is further on."""
        if master is None:
            stored(_no_master(queue))
            return
        flow = hand_over(master, self._group, queue, offset, force=force, timeout_s=self._timeout_s)
        self._instance.driver.spawn(flow, stored)


class LocalOffsets:
    """Offsets of a broadcasting member, in a file of its own."""

    def __init__(
        self,
        instance: ClientInstance,
        path: Path,
        start: StartFrom,
        *,
        timeout_s: float = OFFSET_TIMEOUT_S,
    ) -> None:
        self._instance = instance
        self._path = path
        self._start = start
        self._timeout_s = timeout_s
        self._offsets = _load(path)
        self._changed = False
        self._writer = ThreadPoolExecutor(1, "gimbalmq-offsets")

    def find(
        self, queue: MessageQueue, master: str | None, found: Found, *, new: bool = False
    ) -> None:
        """The offset in the file, or where the start policy says."""
        known = self._offsets.get(queue)
        if known is not None:
            self._instance.driver.call_later(0.0, lambda: found(known))
        elif master is None:
            found(_no_master(queue))
        else:
            flow = starting_offset(master, queue, self._start, new=new, timeout_s=self._timeout_s)
            self._instance.driver.spawn(flow, found)

    def commit(self, queue: MessageQueue, master: str | None, offset: int) -> None:
        """Note progress; the file follows once for all queues of a round."""
        del master  # the file is at hand whoever is down
        if self._offsets.get(queue) != offset:
            self._offsets[queue] = offset
            if not self._changed:
                self._changed = True
                self._instance.driver.call_later(0.0, self._write)

    def hand_over(
        self, queue: MessageQueue, master: str | None, offset: int, stored: Stored, *, force: bool
    ) -> None:
        """Note the last progress."""
        del force  # nobody else writes this file
        self.commit(queue, master, offset)
        self._instance.driver.call_later(0.0, lambda: stored(None))

    def close(self) -> None:
        """Write what is not written yet, and wait for it; safe to call again."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._writer.submit(_save, self._path, dict(self._offsets))
        self._writer.shutdown()

    def _write(self) -> None:
        self._changed = False
        self._writer.submit(_save, self._path, dict(self._offsets))


def _no_master(queue: MessageQueue) -> TransportError:
    return TransportError(f"broker '{queue.broker}' has no master, which keeps the offsets")


def _load(path: Path) -> dict[MessageQueue, int]:
    """What the file says; where it is missing or corrupt, what a Java client has put aside."""
    spare = path.with_name(f"{path.name}.bak")
    trouble: ConfigurationError | None = None
    try:
        offsets = _read(path)
        if offsets is not None:
            return offsets
    except ConfigurationError as error:
        trouble = error
    try:
        offsets = _read(spare)
    except ConfigurationError as error:
        raise ConfigurationError(f"{trouble}; {error}" if trouble else str(error)) from error
    if offsets is None and trouble is not None:
        raise trouble
    if trouble is not None:
        _log.warning("%s. The older %s is used instead", trouble, spare)
    return {} if offsets is None else offsets


def _read(path: Path) -> dict[MessageQueue, int] | None:
    """What one file says; None when there is none, or nothing in it.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        data = path.read_bytes()
        return decode_offset_file(data) if data else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(
            f"offset file {path} cannot be read ({error.strerror}): check its permissions"
        ) from error
    except ProtocolError as error:
        raise ConfigurationError(
            f"offset file {path} is corrupt ({error}): move it away to start anew, or restore it"
        ) from error


def _save(path: Path, offsets: dict[MessageQueue, int]) -> None:
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(encode_offset_file(offsets))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        _log.warning("offset file %s could not be written: %s", path, error)
