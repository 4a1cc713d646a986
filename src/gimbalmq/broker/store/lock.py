"""One process per data directory.

The lock is the operating system's, on an open file: it goes with the process, however that ends.
The file's content only tells the next one whom to ask.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.files import disk_errors

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """Holds a data directory from construction until `release`."""

    __slots__ = ("_descriptor",)

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        with disk_errors("lock the data directory", directory):
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                os.close(descriptor)
                raise StoreError(
                    f"data directory '{directory}' is in use by process {holder or 'unknown'}: "
                    "stop that one first, or choose another directory",
                    path=str(directory),
                ) from None
            except OSError:
                os.close(descriptor)
                raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go; the file stays, for removing it could take away another process's lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
