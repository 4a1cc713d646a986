"""Storage of the embedded broker: durable, on one machine, in pure Python.

`open_store` opens a data directory; `Store` is what the broker sees of it.
"""

from gimbalmq.broker.store.api import (
    Appended,
    Boundary,
    Flush,
    FlushPolicy,
    ReadResult,
    ReadStatus,
    Store,
    StoredMessage,
    StoreError,
    Wanted,
)
from gimbalmq.broker.store.documents import Documents
from gimbalmq.broker.store.file_store import FileStore, open_store
from gimbalmq.broker.store.options import StoreOptions
from gimbalmq.broker.store.recovery import RecoveryReport
from gimbalmq.broker.store.retention import RetentionPolicy

__all__ = [
    "Appended",
    "Boundary",
    "Documents",
    "FileStore",
    "Flush",
    "FlushPolicy",
    "ReadResult",
    "ReadStatus",
    "RecoveryReport",
    "RetentionPolicy",
    "Store",
    "StoreError",
    "StoreOptions",
    "StoredMessage",
    "Wanted",
    "open_store",
]
