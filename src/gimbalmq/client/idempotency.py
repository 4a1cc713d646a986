"""Listeners that process each message once, although it may be delivered more often.

Messages come at least once: again after a crash, a change of owner, a failed commit. A store
remembers what was seen. Each message is claimed before the listener runs and marked done after
it returned; a claim that is neither done nor given back ends by itself, so that a crash in between
loses nothing. While another member has the claim, the message comes again after longer and longer
pauses: together they have to be longer than the claim of one who died may stand.
"""

from __future__ import annotations

import enum
import functools
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.verdict import RetryLater
from gimbalmq.runtime.coroutines import is_coroutine_listener

__all__ = ["Claim", "MemorySeen", "SeenStore", "SqliteSeen", "check_patience", "idempotent"]

#: How long a claim stands before it may be taken over from somebody who died; longer than any
#: listener should take (Java's consume timeout).
_CLAIM_S = 900.0


class Claim(enum.Enum):
    """What a store says to one who wants to process a message."""

    GRANTED = "it is yours"
    BUSY = "somebody is at it"
    DONE = "it was processed before"


class SeenStore(Protocol):
    """Remembers which messages were processed; safe to use from several threads.

    One that has an attribute `claim_s`, the seconds that a claim stands which is neither done nor
    given back, lets consumers see whether they try a message for long enough.
    """

    def claim(self, key: str) -> Claim:
        """Ask for a message; at most one gets it."""

    def done(self, key: str) -> None:
        """The claimed message was processed."""

    def forget(self, key: str) -> None:
        """The claimed message was not processed: somebody else may."""


class MemorySeen:
    """Remembers in this process, the newest `capacity` messages and each for `ttl_s`.

    >>> seen = MemorySeen()
    >>> seen.claim("7F0001"), seen.claim("7F0001")
    (<Claim.GRANTED: 'it is yours'>, <Claim.BUSY: 'somebody is at it'>)
    >>> seen.done("7F0001")
    >>> seen.claim("7F0001").name
    'DONE'
    """

    def __init__(
        self,
        capacity: int = 100_000,
        ttl_s: float = 86_400.0,
        *,
        claim_s: float = _CLAIM_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if capacity < 1:
            raise ConfigurationError(f"capacity is {capacity}: give at least 1")
        _check_times(ttl_s, claim_s)
        self._capacity = capacity
        self._ttl_s = ttl_s
        #: How long a claim stands that is neither done nor given back.
        self.claim_s = claim_s
        self._clock = clock
        self._lock = threading.Lock()
        #: By key: until when the entry counts, and whether it is done.
        self._entries: OrderedDict[str, tuple[float, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def claim(self, key: str) -> Claim:
        """Ask for a message; at most one gets it."""
        now = self._clock()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and now < entry[0]:
                return Claim.DONE if entry[1] else Claim.BUSY
            self._put(key, now + self.claim_s, done=False)
            return Claim.GRANTED

    def done(self, key: str) -> None:
        """The claimed message was processed."""
        with self._lock:
            self._put(key, self._clock() + self._ttl_s, done=True)

    def forget(self, key: str) -> None:
        """The claimed message was not processed: somebody else may."""
        with self._lock:
            self._entries.pop(key, None)

    def _put(self, key: str, until: float, *, done: bool) -> None:
        self._entries[key] = until, done
        self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            # The oldest that is done; a claim must stand, or two would work on one message.
            oldest = next((k for k, (_, is_done) in self._entries.items() if is_done), None)
            if oldest is None:
                break
            del self._entries[oldest]


class SqliteSeen:
    """Remembers in an SQLite file, which several processes of one machine may share.

    >>> with SqliteSeen(":memory:") as seen:
    ...     seen.claim("7F0001").name
    'GRANTED'
    """

    def __init__(
        self,
        path: str | Path,
        ttl_s: float = 604_800.0,
        *,
        claim_s: float = _CLAIM_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_times(ttl_s, claim_s)
        self._ttl_s = ttl_s
        #: How long a claim stands that is neither done nor given back.
        self.claim_s = claim_s
        self._clock = clock
        self._lock = threading.Lock()
        self._clean_at = 0.0
        try:
            # Every statement is a transaction of its own, across threads and processes.
            self._database = sqlite3.connect(
                path, timeout=30.0, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS seen "
                "(key TEXT PRIMARY KEY, until REAL NOT NULL, done INTEGER NOT NULL) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"{path} cannot be used to remember messages ({error}): give the path of a new "
                "file, or of one made by SqliteSeen"
            ) from error

    def claim(self, key: str) -> Claim:
        """Ask for a message; at most one gets it."""
        now = self._clock()
        with self._lock:
            self._clean(now)
            # One statement: it inserts, or takes an entry over whose time is up, or does nothing.
            changed = self._database.execute(
                "INSERT INTO seen VALUES (?, ?, 0) ON CONFLICT (key) DO UPDATE "
                "SET until = excluded.until, done = 0 WHERE seen.until <= ?",
                (key, now + self.claim_s, now),
            ).rowcount
            if changed:
                return Claim.GRANTED
            row = self._database.execute("SELECT done FROM seen WHERE key = ?", (key,)).fetchone()
        # Gone in this moment: whoever had it gave it back, and this message comes again soon.
        return Claim.DONE if row is not None and row[0] else Claim.BUSY

    def done(self, key: str) -> None:
        """The claimed message was processed."""
        with self._lock:
            self._database.execute(
                "INSERT OR REPLACE INTO seen VALUES (?, ?, 1)", (key, self._clock() + self._ttl_s)
            )

    def forget(self, key: str) -> None:
        """The claimed message was not processed: somebody else may."""
        with self._lock:
            self._database.execute("DELETE FROM seen WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _clean(self, now: float) -> None:
        if now >= self._clean_at:
            self._clean_at = now + self._ttl_s / 10
            self._database.execute("DELETE FROM seen WHERE until <= ?", (now,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def idempotent(
    listener: Callable[[Any], object] | None = None,
    *,
    store: SeenStore,
    key: Callable[[Any], str] | None = None,
) -> Any:
    """A listener that skips messages which it has processed before; also a decorator.

        seen = SqliteSeen("billing-seen.db")

        @consumer.subscribe("orders")
        @idempotent(store=seen)
        def bill(message): ...

    Args:
        listener: Gets one message; a function or a coroutine function.
        store: Remembers. One that all members share (a table of the database that the listener
            writes to, say) covers changes of owner; a local one covers what stays here.
        key: What tells messages apart; the message id of the first delivery if None. A key of
            the business (order number and event, say) also covers a producer that sends twice.

    A message that somebody else is working on raises `RetryLater`; in an ordered group it is tried
    again after the pause. Each of these counts as an attempt, so a consumer whose
    `max_reconsume_times` would be used up while the claim of a dead member stands refuses the
    listener. Lists of messages (`batch_size` above 1) are refused.
    """
    if listener is None:
        return functools.partial(idempotent, store=store, key=key)
    once = _once(listener, store, _message_key if key is None else key)
    # Decorators that wrap this one carry it on, as functools.wraps does.
    once.claim_s = getattr(store, "claim_s", None)  # type: ignore[attr-defined]
    return once


def check_patience(listener: object, patience_s: float) -> None:
    """Refuse an idempotent listener whose messages are given up while a claim may still stand."""
    claim_s: object = getattr(listener, "claim_s", None)
    # Its kind is looked at because mocks, which are listeners in tests, have every attribute.
    if isinstance(claim_s, int | float) and patience_s < claim_s:
        raise ConfigurationError(
            f"the claim of a member that dies stands for {claim_s:g} s, and with this "
            f"max_reconsume_times a message is given up after {patience_s:g} s: the dead letters "
            "would get messages that nobody has processed. Raise max_reconsume_times, or give the "
            "store a claim_s that is shorter, and longer than the listener takes"
        )


def _once(
    listener: Callable[[Any], object], store: SeenStore, key_of: Callable[[Any], str]
) -> Callable[[Any], object]:
    if is_coroutine_listener(listener):

        @functools.wraps(listener)
        async def once_async(message: Any) -> object:
            name = _claimed(store, key_of, message)
            if name is None:
                return None
            try:
                result = await listener(message)  # type: ignore[misc]
            except BaseException:
                store.forget(name)
                raise
            store.done(name)
            return result

        return once_async

    @functools.wraps(listener)
    def once(message: Any) -> object:
        name = _claimed(store, key_of, message)
        if name is None:
            return None
        try:
            result = listener(message)
        except BaseException:
            store.forget(name)
            raise
        store.done(name)
        return result

    return once


def _claimed(store: SeenStore, key_of: Callable[[Any], str], message: Any) -> str | None:
    """The key of a message that is to be processed now; None when it was before."""
    if isinstance(message, list):
        raise ConfigurationError(
            "an idempotent listener gets one message at a time: set batch_size=1"
        )
    name = key_of(message)
    match store.claim(name):
        case Claim.GRANTED:
            return name
        case Claim.DONE:
            return None
        case Claim.BUSY:
            # Not after a fixed short pause: the attempts would be used up before the claim ends.
            raise RetryLater


def _message_key(message: Any) -> str:
    # A retry has an id of its own when it was produced anew; the first one's stays with it.
    origin = message.property_value("ORIGIN_MESSAGE_ID")
    return f"{message.topic} {message.property_value('UNIQ_KEY') or origin or message.message_id}"


def _check_times(ttl_s: float, claim_s: float) -> None:
    for name, value in (("ttl_s", ttl_s), ("claim_s", claim_s)):
        if value <= 0:
            raise ConfigurationError(f"{name} is {value}: give seconds above 0")
