"""Topics that were deleted: their records lie in the log until retention takes them.

Decides from which place of the log on a topic's records count again, and which removals of files
a crash may have interrupted. Must not know how queues are kept, nor when retention runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.broker.store.api import StoreError
from gimbalmq.broker.store.documents import Documents

__all__ = ["Deletions"]

_NAME: Final = "deleted"


class _Noted(msgspec.Struct, frozen=True):
    """What the document says."""

    #: The place of the log before which a topic's records no longer count.
    before: dict[str, int] = {}
    #: Topics whose files may still be there.
    removing: list[str] = []


class Deletions:
    """What was deleted, in memory and on disk; every change is on disk when the call returns."""

    def __init__(self, notes: Documents) -> None:
        """Take over what an earlier run noted.

        Raises:
            StoreError: it cannot be read; deleted topics might come back.
        """
        self._notes = notes
        self._noted = _read(notes)

    @property
    def before(self) -> Mapping[str, int]:
        """By topic: the place of the log before which its records no longer count."""
        return self._noted.before

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Topics whose files may still be there."""
        return tuple(self._noted.removing)

    def begin(self, topic: str, place: int) -> None:
        """Note that a topic's records before a place are gone, before its files are removed."""
        noted = self._noted
        self._write(_Noted({**noted.before, topic: place}, [*noted.removing, topic]))

    def finish(self, topic: str) -> None:
        """Note that a topic's files are removed."""
        noted = self._noted
        self._write(_Noted(noted.before, [one for one in noted.removing if one != topic]))

    def end_at(self, end: int) -> None:
        """The log ends at a place now, perhaps before one that was noted: a crash took its tail.

        What is appended from there on is new, whatever places the lost tail had.
        """
        noted = self._noted
        if any(place > end for place in noted.before.values()):
            before = {topic: min(place, end) for topic, place in noted.before.items()}
            self._write(_Noted(before, noted.removing))

    def forget(self, start: int) -> None:
        """The log starts at a place now: topics deleted before it have no records left."""
        noted = self._noted
        left = {topic: place for topic, place in noted.before.items() if place > start}
        if len(left) < len(noted.before):
            self._write(_Noted(left, noted.removing))

    def _write(self, noted: _Noted) -> None:
        self._notes.write(_NAME, noted)
        self._noted = noted


def _read(notes: Documents) -> _Noted:
    content = notes.read(_NAME)
    try:
        return _Noted() if content is None else msgspec.convert(content, _Noted)
    except msgspec.ValidationError as error:
        path = notes.path(_NAME)
        raise StoreError(
            f"'{path}' does not list deleted topics ({error}): restore it from a copy, or remove "
            "it; topics that were deleted may then come back",
            path=str(path),
        ) from error
