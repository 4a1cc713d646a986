"""What the tests of the store share: messages, a crash, a disk that refuses, a reader."""

from __future__ import annotations

import errno
import os

from gimbalmq.broker.store import FlushPolicy, StoredMessage, StoreOptions, open_store
from gimbalmq.broker.store.files import Disk
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import decode_records

HOST = ("127.0.0.1", 10911)
NOW = 1_700_000_000_000


def message(body=b"paid", topic="orders", queue_id=0, **properties):
    return StoredMessage(
        topic,
        queue_id,
        body,
        born_timestamp_ms=NOW - 5,
        born_host=("10.0.0.7", 5151),
        properties=encode_properties(properties),
    )


def opened(directory, disk=None, **options):
    options.setdefault("flush", FlushPolicy.NONE)
    options.setdefault("segment_bytes", 4096)
    return open_store(directory, store_host=HOST, options=StoreOptions(**options), disk=disk)


def crash(store):
    """Let go of everything as the end of the process would, without a word to the disk."""
    store._log.close()
    store._segments.close()
    store._files.close()
    store._lock.release()
    store._closed = True


def put(store, *bodies, topic="orders", queue_id=0, now_ms=NOW, **properties):
    """One append per body."""
    return [
        store.append([message(body, topic, queue_id, **properties)], now_ms)[0] for body in bodies
    ]


def bodies(store, topic="orders", queue_id=0):
    """All bodies that a queue holds, read as a consumer would; offsets must not jump back."""
    found, offset = [], store.bounds(topic, queue_id)[0]
    while True:
        result = store.read(topic, queue_id, offset, max_messages=3, max_bytes=100_000)
        if result.next_offset == offset:
            return found
        for one in decode_records(b"".join(result.records), "b"):
            assert one.queue_id == queue_id
            assert one.record_topic == topic
            assert one.queue_offset >= offset
            found.append(one.body)
        offset = result.next_offset


def segments(directory):
    return sorted((directory / "log").iterdir())


class BrokenDisk(Disk):
    """Fails what it is told to fail: a method's name to an errno."""

    __slots__ = ("broken", "partial", "room")

    def __init__(self):
        self.broken = {}
        #: Bytes that a failing write leaves behind.
        self.partial = 0
        #: Bytes until the disk is full; None for no limit.
        self.room = None

    def _check(self, name):
        if name in self.broken:
            raise OSError(self.broken[name], os.strerror(self.broken[name]))

    def open(self, path):
        self._check("open")
        return super().open(path)

    def write_at(self, descriptor, data, at):
        if self.room is not None:
            if len(data) > self.room:
                self.broken["write_at"], self.partial = errno.ENOSPC, self.room
            else:
                self.room -= len(data)
        if "write_at" in self.broken and self.partial:
            # A write that fails has left out at least one byte; else it would have succeeded.
            left = min(self.partial, len(data) - 1)
            super().write_at(descriptor, bytes(data)[:left], at)
        self._check("write_at")
        super().write_at(descriptor, data, at)

    def resize(self, descriptor, size):
        self._check("resize")
        super().resize(descriptor, size)

    def sync(self, descriptor):
        self._check("sync")
        super().sync(descriptor)

    def replace(self, source, target):
        self._check("replace")
        super().replace(source, target)

    def remove(self, path):
        self._check("remove")
        super().remove(path)
