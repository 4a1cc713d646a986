"""What a group wants of a topic: a tag expression or an SQL text.

The broker filters by the hash of the tag, so a consumer must look at the tag itself again: two
tags may have one hash.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import hash_code

__all__ = ["ALL_TAGS", "SQL92", "TAG", "SubscriptionData", "parse_tags", "sql_subscription"]

TAG: Final = "TAG"
SQL92: Final = "SQL92"
ALL_TAGS: Final = "*"

#: What Java's String.trim removes: everything up to and including the blank.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


_JSON_NAMES: Final = {
    "expression": "subString",
    "tags": "tagsSet",
    "codes": "codeSet",
    "version_ms": "subVersion",
    "expression_type": "expressionType",
    "class_filter_mode": "classFilterMode",
}


class SubscriptionData(msgspec.Struct, frozen=True, rename=_JSON_NAMES):
    """A subscription as heartbeats carry it.

    `version_ms` must be the same in heartbeat and pull, and grow when the expression changes.
    """

    topic: str
    expression: str = ALL_TAGS
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version_ms: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    def matches(self, tags: str | None) -> bool:
        """Whether a message with this tag is wanted; SQL is judged by the broker alone.

        >>> parse_tags("orders", "paid || sent", 0).matches("paid")
        True
        """
        return not self.tags or tags in self.tags

    def same_as(self, other: SubscriptionData) -> bool:
        """Whether both want the same messages, whatever their versions.

        >>> parse_tags("orders", "paid", 1).same_as(parse_tags("orders", "paid", 2))
        True
        """
        mine, others = self.expression_type, other.expression_type
        return (self.expression, mine) == (other.expression, others)

    @property
    def is_sql(self) -> bool:
        """Whether the expression is SQL."""
        return self.expression_type not in {TAG, ""}


def parse_tags(topic: str, expression: str | None, version_ms: int) -> SubscriptionData:
    """Read a tag expression by Java's rules (FilterAPI): `*`, or tags joined by `||`.

    >>> sorted(parse_tags("orders", "paid || sent", 0).tags)
    ['paid', 'sent']
    """
    if not isinstance(expression, str | None):
        raise ConfigurationError(
            f"tags for topic '{topic}' are {expression!r}: give text, several joined by ||"
        )
    if not expression or expression == ALL_TAGS:
        return SubscriptionData(topic, version_ms=version_ms)
    parts = expression.split("||")
    if not any(parts):
        raise ConfigurationError(
            f"tag expression '{expression}' for topic '{topic}' names no tag: "
            "write tags joined by ||, or * for all"
        )
    tags = frozenset(filter(None, (part.strip(_TRIMMED) for part in parts)))
    return SubscriptionData(topic, expression, tags, frozenset(map(hash_code, tags)), version_ms)


def sql_subscription(topic: str, sql: str, version_ms: int) -> SubscriptionData:
    """A subscription by an SQL92 expression over properties; the broker must have it enabled."""
    if not isinstance(sql, str):
        raise ConfigurationError(f"the SQL expression for topic '{topic}' is {sql!r}: give text")
    if not sql.strip():
        raise ConfigurationError(f"the SQL expression for topic '{topic}' is empty")
    return SubscriptionData(topic, sql, version_ms=version_ms, expression_type=SQL92)
