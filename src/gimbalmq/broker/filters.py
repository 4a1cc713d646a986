"""Which messages a subscription wants: by the hash of the tag, or by an SQL92 expression."""

from __future__ import annotations

import functools
from collections.abc import Callable

from gimbalmq.broker.sql92 import Selection, compile_selection
from gimbalmq.broker.store.api import StoredMessage, Wanted
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import hash_code
from gimbalmq.wire.properties import decode_properties, find_property
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.subscription import ALL_TAGS, SQL92, SubscriptionData

__all__ = ["MessageFilter", "filter_of", "selection_of", "tag_hash"]


class MessageFilter:
    """Judges messages in the log and messages that are just being stored."""

    __slots__ = ("_codes", "_selection")

    def __init__(self, codes: frozenset[int] | None, selection: Selection | None) -> None:
        self._codes = codes
        self._selection = selection

    @property
    def wanted(self) -> Wanted:
        """The form that the store asks."""
        return self._by_tag if self._selection is None else self._by_properties

    def wants(self, message: StoredMessage) -> bool:
        """Whether a message that is just being stored is wanted."""
        if self._selection is not None:
            return self._selection.matches(decode_properties(message.properties))
        return self._codes is None or tag_hash(message.properties) in self._codes

    def _by_tag(self, tag: int, record: Callable[[], bytes]) -> bool:
        del record
        return self._codes is None or tag in self._codes

    def _by_properties(self, tag: int, record: Callable[[], bytes]) -> bool:
        del tag
        assert self._selection is not None
        return self._selection.matches(decode_records(record(), "")[0].properties)


def tag_hash(properties: bytes) -> int:
    """Java's hash of the tag, 0 without one."""
    tags = find_property(properties, b"TAGS")
    return 0 if tags is None else hash_code(tags.decode("utf-8", "replace"))


def filter_of(subscription: SubscriptionData) -> MessageFilter | None:
    """The filter of a subscription; None when it wants everything.

    Raises:
        ConfigurationError: its SQL expression cannot be read, or its type is unknown.
    """
    if subscription.is_sql:
        if subscription.expression_type != SQL92:
            raise ConfigurationError(
                f"expression type '{subscription.expression_type}' is unknown: use TAG or SQL92"
            )
        return MessageFilter(None, selection_of(subscription.expression))
    if subscription.expression == ALL_TAGS or subscription.class_filter_mode:
        return None
    return MessageFilter(subscription.codes, None)


@functools.lru_cache(maxsize=1024)
def selection_of(expression: str) -> Selection:
    """The compiled form of an expression; each is compiled once."""
    return compile_selection(expression)
