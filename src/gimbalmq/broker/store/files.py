"""The seam to the file system: every write, flush and removal of the store passes through here.

Decides how a failed system call is put into words, and bounds the number of open files. Must not
know what the files mean. Tests replace `Disk` to fill the disk or to break it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gimbalmq.broker.store.api import StoreError

__all__ = [
    "Disk",
    "OpenFiles",
    "directories_to_make",
    "disk_errors",
    "is_directory",
    "is_there",
    "rewrite",
    "shown",
    "sync_paths",
]

_SYNC_THREADS: Final = 16

#: Cause and remedy of the failures that an operator can do something about.
_REMEDIES: Final = {
    errno.ENOSPC: "the disk is full: free space, or lower the retention limits",
    errno.EDQUOT: "the disk quota is used up: free space, or lower the retention limits",
    errno.EFBIG: "a file would grow beyond the limit of this process: raise it (ulimit -f), or "
    "use smaller log segments",
    errno.EROFS: "the file system is read-only: remount it, or choose another data directory",
    errno.EACCES: "permission is missing: change the owner or mode of the data directory",
    errno.EPERM: "permission is missing: change the owner or mode of the data directory",
    errno.EMFILE: "this process has too many open files: raise the limit (ulimit -n)",
    errno.ENFILE: "the machine has too many open files: raise the limit (fs.file-max)",
    errno.EIO: "the device failed: look at the system log, and restore from a copy if it is lost",
    errno.ENOENT: "it has been removed from outside: restart the broker, which repairs what it can",
    errno.ENOTDIR: "a file stands where a directory should be: choose another data directory",
    errno.EEXIST: "a file stands where a directory should be: choose another data directory",
    errno.ENAMETOOLONG: "the name is too long for the file system: use a shorter topic name",
}


def shown(error: OSError, what: str, path: Path | str) -> StoreError:
    """The error to show for a failed system call."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "look at the system log")
    return StoreError(
        f"cannot {what} '{path}' ({reason}): {remedy}", path=str(path), retryable=True
    )


@contextlib.contextmanager
def disk_errors(what: str, path: Path | str) -> Iterator[None]:
    """Turn the failures of a block into `StoreError`s that say what was tried on which file."""
    try:
        yield
    except OSError as error:
        raise shown(error, what, path) from error


class Disk:
    """The system calls that change something, as methods; they raise plain OSErrors."""

    __slots__ = ()

    def open(self, path: Path) -> int:
        """A descriptor for reading and writing; makes the file if it is missing."""
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def write_at(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write all of `data`; after an error some of it may have been written."""
        written = os.pwrite(descriptor, data, at)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            step = os.pwrite(descriptor, view[written:], at + written)
            if step == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += step

    def resize(self, descriptor: int, size: int) -> None:
        """Cut the file, or lengthen it by a hole that reads as zeros and takes no space."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes and size are on the device."""
        os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over whatever has the name."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        path.unlink(missing_ok=True)


def is_there(path: Path) -> bool:
    """Whether something has this name.

    Unlike `Path.exists`, which in newer Pythons takes what it may not look at for missing, this
    raises an OSError then.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_directory(path: Path) -> bool:
    """Whether a directory has this name; raises an OSError as `is_there` does."""
    return is_there(path) and stat.S_ISDIR(path.stat().st_mode)


def directories_to_make(path: Path) -> list[Path]:
    """The directories that making this one, with its parents, will make."""
    with disk_errors("look for", path):
        return [one for one in (path, *path.parents) if not is_there(one)]


def sync_paths(disk: Disk, paths: Collection[Path]) -> None:
    """Wait until files and directories are on the device, many at a time.

    File systems commit what waits together in one go, so a thousand small files cost little more
    than a few dozen.
    """

    def sync(path: Path) -> None:
        with disk_errors("flush", path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                disk.sync(descriptor)
            finally:
                os.close(descriptor)

    if len(paths) <= 2:
        for path in paths:
            sync(path)
        return
    with ThreadPoolExecutor(min(len(paths), _SYNC_THREADS)) as pool:
        for _ in pool.map(sync, paths):
            pass


def rewrite(disk: Disk, paths: Collection[Path]) -> None:
    """Write the bytes of some files again, so that a flush that failed can be made good.

    The kernel reports a page that it could not write once and then calls it clean: a second flush
    would succeed without it. Directories are left alone; the file system keeps those.
    """
    for path in paths:
        with disk_errors("write again after a failed flush", path):
            if not path.is_file():
                continue
            descriptor = disk.open(path)
            try:
                data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                disk.write_at(descriptor, data, 0)
            finally:
                os.close(descriptor)


class OpenFiles:
    """Descriptors of recently used files, at most `limit` of them; the oldest is closed first.

    Thousands of queues have a file each, processes often may open 1,024.
    """

    __slots__ = ("_descriptors", "_limit", "disk")

    def __init__(self, disk: Disk, limit: int = 128) -> None:
        self.disk = disk
        self._limit = limit
        self._descriptors: OrderedDict[Path, int] = OrderedDict()

    def get(self, path: Path) -> int:
        """The file's descriptor, valid until the next call."""
        descriptor = self._descriptors.get(path)
        if descriptor is not None:
            self._descriptors.move_to_end(path)
            return descriptor
        while len(self._descriptors) >= self._limit:
            os.close(self._descriptors.popitem(last=False)[1])
        descriptor = self._descriptors[path] = self.disk.open(path)
        return descriptor

    def forget(self, path: Path) -> None:
        """Close a file that is about to be removed."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
