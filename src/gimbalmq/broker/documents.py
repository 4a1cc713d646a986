"""Named documents that outlive the process, as the machines see them: bytes of JSON.

Decides nothing; `JsonDocuments` joins the machines to the store's files, `KeptInMemory` stands in
where nothing is to outlive anything.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

__all__ = ["Documents", "JsonDocuments", "KeptInMemory"]


class Documents(Protocol):
    """Each document is replaced as a whole."""

    def load(self, name: str) -> bytes | None:
        """The document as last saved, or None."""

    def save(self, name: str, data: bytes) -> None:
        """Replace the document.

        Raises:
            StoreError: the disk refused; the old document is untouched.
        """


class _Files(Protocol):
    def read(self, name: str) -> Any: ...

    def write(self, name: str, content: Any) -> None: ...


class JsonDocuments:
    """Documents in the files of a store."""

    def __init__(self, files: _Files) -> None:
        self._files = files

    def load(self, name: str) -> bytes | None:
        """The document as last saved, or None."""
        content = self._files.read(name)
        return None if content is None else msgspec.json.encode(content)

    def save(self, name: str, data: bytes) -> None:
        """Replace the document."""
        self._files.write(name, msgspec.Raw(data))


class KeptInMemory:
    """Documents that go with the process."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}

    def load(self, name: str) -> bytes | None:
        """The document as last saved, or None."""
        return self._documents.get(name)

    def save(self, name: str, data: bytes) -> None:
        """Replace the document."""
        self._documents[name] = data
