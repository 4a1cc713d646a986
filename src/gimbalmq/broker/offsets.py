"""How far each group is: offsets by topic, group and queue, and resets that wait for a pull.

An offset is the next one to consume. A commit overwrites whatever was there, even by a smaller
value; while a reset waits, commits are acknowledged and ignored (ConsumerOffsetManager).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gimbalmq.broker.documents import Documents
from gimbalmq.wire.bodies import decode_consumer_offsets, encode_consumer_offsets

__all__ = ["OffsetTable"]

_DOCUMENT: Final = "consumerOffset"


class OffsetTable:
    """Offsets in memory; `save` writes them when they have changed."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        data = documents.load(_DOCUMENT)
        self._offsets = {} if data is None else decode_consumer_offsets(data)
        #: Where the last pull of a group began; not kept, only shown.
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        self._dirty = False

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """The stored offset, or the one that a waiting reset will set; None when there is none.

        A negative one was stored by somebody who meant none.
        """
        reset = self._resets.get((topic, group, queue_id))
        if reset is not None:
            return reset
        offset = self._offsets.get((topic, group), {}).get(queue_id, -1)
        return None if offset < 0 else offset

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Store an offset; False when a waiting reset makes it void."""
        if (topic, group, queue_id) in self._resets:
            return False
        self._put(topic, group, queue_id, offset)
        return True

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Have the next pull of the group start at `offset`."""
        self._put(topic, group, queue_id, offset)
        self._resets[topic, group, queue_id] = offset

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The reset that waits for this pull; it waits no longer."""
        return self._resets.pop((topic, group, queue_id), None)

    def note_pull(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Remember where a group is reading."""
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def pulled(self, topic: str, group: str, queue_id: int) -> int:
        """Where a group was reading last; 0 when unknown."""
        return self._pulled.get((topic, group), {}).get(queue_id, 0)

    def topics_of(self, group: str) -> list[str]:
        """The topics for which a group has offsets."""
        return [topic for topic, name in self._offsets if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets for a topic."""
        return [group for name, group in self._offsets if name == topic]

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """All offsets of a group for a topic."""
        return dict(self._offsets.get((topic, group), {}))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._offsets))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets that another has for a topic."""
        queues = self._offsets.get((topic, source))
        if queues is not None:
            self._offsets[topic, target] = dict(queues)
            self._dirty = True

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group."""
        self._forget({key for key in self._offsets if key[1] == group})

    def forget_topic(self, topic: str) -> None:
        """Drop all offsets for a topic."""
        self._forget({key for key in self._offsets if key[0] == topic})

    def encoded(self) -> bytes:
        """The table as GET_ALL_CONSUMER_OFFSET gives it."""
        return encode_consumer_offsets(self._offsets)

    def save(self) -> None:
        """Write the table if it has changed since."""
        if self._dirty:
            self._documents.save(_DOCUMENT, self.encoded())
            self._dirty = False

    def _put(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.setdefault((topic, group), {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._dirty = True

    def _forget(self, keys: set[tuple[str, str]]) -> None:
        for key in keys:
            del self._offsets[key]
            self._pulled.pop(key, None)
            self._dirty = True
        for reset in [one for one in self._resets if one[:2] in keys]:
            del self._resets[reset]
