"""Queue weights as they are published: one document per topic and version."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["WEIGHTS_TOPIC", "QueueWeights"]

#: Where weights are published; a topic with one queue.
WEIGHTS_TOPIC: Final = "GIMBALMQ_WEIGHTS"


class QueueWeights(msgspec.Struct, frozen=True):
    """The load of each queue of a topic; `weights` by queue path, 1.0 the average."""

    version: int
    topic: str
    made_at_ms: int
    weights: dict[str, float]
