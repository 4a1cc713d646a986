"""All queues of a store: topic and number to index, and both to a directory name.

Must not know the log, nor when an index is complete.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from gimbalmq.broker.store.files import OpenFiles, disk_errors, is_directory
from gimbalmq.broker.store.queue_index import QueueIndex, load_queue_index
from gimbalmq.broker.store.terms import key_seed
from gimbalmq.errors import ConfigurationError

__all__ = ["QueueTable", "directory_name", "topic_of"]

#: What stands for itself in a directory name: the characters that RocketMQ allows in topics.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_%|-]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"~([0-9a-f]+)~")
_NAME_BYTES_MAX: Final = 255
#: Entries per file of a queue index: 3 MiB, of which retention removes whole files.
_PER_FILE: Final = 131_072
_QUEUE_ID_MAX: Final = (1 << 31) - 1


def directory_name(topic: str) -> str:
    """The name of a topic's directory; other topics have others.

    >>> directory_name("%RETRY%billing"), directory_name("a.b/c")
    ('%RETRY%billing', 'a~2e~b~2f~c')
    """
    name = _UNSAFE.sub(lambda found: f"~{ord(found[0]):x}~", topic)
    if not 0 < len(name) <= _NAME_BYTES_MAX or _SURROGATE.search(topic):
        raise ConfigurationError(
            f"topic {topic[:40]!r} cannot be stored: its name is empty, longer than "
            f"{_NAME_BYTES_MAX} bytes, or no Unicode text"
        )
    return name


def topic_of(name: str) -> str:
    """The topic of a directory.

    >>> topic_of(directory_name("a.b/c~"))
    'a.b/c~'
    """
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)


class QueueTable(dict[tuple[str, int], QueueIndex]):
    """The queue indexes of a directory, by topic and queue id."""

    def __init__(self, directory: Path, files: OpenFiles, *, per_file: int = _PER_FILE) -> None:
        super().__init__()
        self._directory = directory
        self._files = files
        self._per_file = per_file

    def load(self) -> None:
        """Read what the directory holds."""
        with disk_errors("list the queues in", self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            found = [
                (topic_of(topic.name), int(queue.name), queue)
                for topic in sorted(self._directory.iterdir())
                if is_directory(topic)
                for queue in topic.iterdir()
                if queue.name.isascii() and queue.name.isdigit()
            ]
        for topic, queue_id, path in found:
            index = load_queue_index(
                path, self._files, per_file=self._per_file, key_seed=key_seed(topic)
            )
            if index.bases:
                self[topic, queue_id] = index

    def make(self, topic: str, queue_id: int) -> QueueIndex:
        """An index for a queue that has none; it is in the table once it is put there."""
        if not 0 <= queue_id <= _QUEUE_ID_MAX:
            raise ConfigurationError(
                f"queue {queue_id} of topic '{topic}' cannot be stored: queues count from 0"
            )
        directory = self._directory / directory_name(topic) / str(queue_id)
        return QueueIndex(directory, self._files, per_file=self._per_file, key_seed=key_seed(topic))

    def numbers(self, topic: str) -> list[int]:
        """Queue ids of a topic, in order."""
        return sorted(queue_id for name, queue_id in self if name == topic)

    def remove_topic(self, topic: str) -> bool:
        """Remove a topic's queues, in memory and on disk, for good; True when the disk had any."""
        for queue_id in self.numbers(topic):
            self.pop((topic, queue_id)).remove()
        path = self._directory / directory_name(topic)
        with disk_errors("remove", path):
            found = is_directory(path)
            if found:
                shutil.rmtree(path)
                # Nobody looks for what a power cut would bring back.
                self._files.disk.sync_directory(self._directory)
        return found
