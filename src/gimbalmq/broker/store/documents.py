"""Small JSON documents: configuration, consumer offsets, the store's own notes.

A document is replaced as a whole: written beside the old one, synced, renamed over it. A reader
therefore finds the old or the new one, never a mixture. The one before is kept; when the present
one cannot be read it is used instead, and `problems` and the log say so.

Must not know what the documents say.
"""

from __future__ import annotations

import contextlib
import logging
import os
import string
from pathlib import Path
from typing import Any, Final

import msgspec

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.files import Disk, disk_errors, is_there
from gimbalmq.errors import ConfigurationError

__all__ = ["Documents"]

_logger: Final = logging.getLogger("gimbalmq.broker.store")

_LETTERS: Final = frozenset(string.ascii_letters + string.digits + "-_.")


class Documents:
    """The documents of one directory, by name (letters, digits, `-`, `_` and `.`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     documents = Documents(Path(directory))
    ...     documents.write("topics", {"orders": {"queues": 4}})
    ...     documents.read("topics")
    {'orders': {'queues': 4}}
    """

    __slots__ = ("_directory", "_disk", "problems")

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._disk = disk or Disk()
        #: What was read from the document before, and why.
        self.problems: list[str] = []
        with disk_errors("make the directory", directory):
            directory.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The documents that exist, in order."""
        with disk_errors("list", self._directory):
            found = (*self._directory.glob("*.json"), *self._directory.glob("*.previous"))
            return sorted({path.stem for path in found})

    def read(self, name: str) -> Any:
        """A document's content; None when it was never written.

        Raises:
            StoreError: neither it nor the one before can be read.
        """
        path = self.path(name)
        previous = path.with_suffix(".previous")
        with disk_errors("read", path):
            latest = path if is_there(path) or not is_there(previous) else previous
        try:
            return _content(latest)
        except msgspec.DecodeError as error:
            damage = str(error)
        try:
            if previous.exists():
                content = _content(previous)
                problem = (
                    f"'{path}' is damaged ({damage}): used the one before it, '{previous.name}'"
                )
                self.problems.append(problem)
                _logger.warning("%s", problem)
                return content
        except msgspec.DecodeError:
            pass
        raise StoreError(
            f"'{path}' is not JSON ({damage}): restore it from a copy, or remove it to start "
            "without what it says",
            path=str(path),
        )

    def write(self, name: str, content: Any) -> None:
        """Replace a document; it is on disk when this returns.

        Raises:
            StoreError: the disk refused; the old document is untouched.
        """
        path = self.path(name)
        data = msgspec.json.format(msgspec.json.encode(content), indent=2)
        fresh = path.with_suffix(".new")
        with disk_errors("write", path):
            descriptor = self._disk.open(fresh)
            try:
                self._disk.resize(descriptor, 0)
                self._disk.write_at(descriptor, data, 0)
                self._disk.sync(descriptor)
            finally:
                os.close(descriptor)
            previous = path.with_suffix(".previous")
            with contextlib.suppress(FileNotFoundError):  # the first version has none before it
                self._disk.replace(path, previous)
            self._disk.replace(fresh, path)
            self._disk.sync_directory(self._directory)

    def remove(self, name: str) -> None:
        """Forget a document."""
        path = self.path(name)
        with disk_errors("remove", path):
            self._disk.remove(path.with_suffix(".previous"))
            self._disk.remove(path)
            self._disk.sync_directory(self._directory)

    def path(self, name: str) -> Path:
        """The file of a document."""
        if not name or name.startswith(".") or not set(name) <= _LETTERS:
            raise ConfigurationError(
                f"'{name}' is no name for a document: use letters, digits, '-', '_' and '.'"
            )
        return self._directory / f"{name}.json"


def _content(path: Path) -> Any:
    with disk_errors("read", path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    return msgspec.json.decode(data)
