"""CROSS_TOPIC: CAPPED_HASH over the queues of all topics of the group at once.

Goals, in order: the numbers of queues that members have over all topics together differ by at most
one; few queues move. Shared out topic by topic, each topic's remainder falls to somebody anew: many
small topics can leave members with nothing. Here only the sum counts, so a member may well have two
queues of one topic and none of another. Cost and ties: as CAPPED_HASH.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gimbalmq.core.allocation.capped_hash import CappedHash

__all__ = ["CrossTopic"]


class CrossTopic(CappedHash):
    """CAPPED_HASH that is given all topics in one snapshot."""

    name = "CROSS_TOPIC"
    cross_topic = True

    def _words(self, data: Mapping[str, Any]) -> str:
        return f"{super()._words(data)}, all topics counted together"
