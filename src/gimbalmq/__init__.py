"""Load balancing for Apache RocketMQ, in Python, with data pipelines on Spark.

Names are loaded when they are first used, so importing the package is quick, starts nothing, and
needs no optional dependency.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gimbalmq import aio as aio
    from gimbalmq import balance as balance
    from gimbalmq import errors as errors
    from gimbalmq import metrics as metrics
    from gimbalmq.client.admin import Admin
    from gimbalmq.client.idempotency import MemorySeen, SeenStore, SqliteSeen, idempotent
    from gimbalmq.client.lite_pull_consumer import LitePullConsumer
    from gimbalmq.client.producer import Producer
    from gimbalmq.client.pull_consumer import PullConsumer
    from gimbalmq.client.push_consumer import PushConsumer
    from gimbalmq.client.stats import ConsumerStats, Probe, QueueStats
    from gimbalmq.core.consumer.effects import QueueMove, RebalanceReport
    from gimbalmq.core.fault import FaultTolerance
    from gimbalmq.flows.admin_offsets import QueueOffsets
    from gimbalmq.model.message import Message, SendResult, SendStatus
    from gimbalmq.model.queue import MessageQueue
    from gimbalmq.model.verdict import Commit, DeadLetter, RetryLater, Rollback, Suspend
    from gimbalmq.runtime.alarms import HungListener
    from gimbalmq.wire.received import PullResult, ReceivedMessage

__version__ = "0.1.0"

_HOMES = {
    "Admin": "gimbalmq.client.admin",
    "Commit": "gimbalmq.model.verdict",
    "ConsumerStats": "gimbalmq.client.stats",
    "DeadLetter": "gimbalmq.model.verdict",
    "FaultTolerance": "gimbalmq.core.fault",
    "HungListener": "gimbalmq.runtime.alarms",
    "LitePullConsumer": "gimbalmq.client.lite_pull_consumer",
    "MemorySeen": "gimbalmq.client.idempotency",
    "Message": "gimbalmq.model.message",
    "MessageQueue": "gimbalmq.model.queue",
    "Probe": "gimbalmq.client.stats",
    "Producer": "gimbalmq.client.producer",
    "PullConsumer": "gimbalmq.client.pull_consumer",
    "PullResult": "gimbalmq.wire.received",
    "PushConsumer": "gimbalmq.client.push_consumer",
    "QueueMove": "gimbalmq.core.consumer.effects",
    "QueueOffsets": "gimbalmq.flows.admin_offsets",
    "QueueStats": "gimbalmq.client.stats",
    "RebalanceReport": "gimbalmq.core.consumer.effects",
    "ReceivedMessage": "gimbalmq.wire.received",
    "RetryLater": "gimbalmq.model.verdict",
    "Rollback": "gimbalmq.model.verdict",
    "SeenStore": "gimbalmq.client.idempotency",
    "SendResult": "gimbalmq.model.message",
    "SendStatus": "gimbalmq.model.message",
    "SqliteSeen": "gimbalmq.client.idempotency",
    "Suspend": "gimbalmq.model.verdict",
    "idempotent": "gimbalmq.client.idempotency",
}
_MODULES = frozenset({"aio", "balance", "errors", "metrics"})

__all__ = [
    "Admin",
    "Commit",
    "ConsumerStats",
    "DeadLetter",
    "FaultTolerance",
    "HungListener",
    "LitePullConsumer",
    "MemorySeen",
    "Message",
    "MessageQueue",
    "Probe",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PushConsumer",
    "QueueMove",
    "QueueOffsets",
    "QueueStats",
    "RebalanceReport",
    "ReceivedMessage",
    "RetryLater",
    "Rollback",
    "SeenStore",
    "SendResult",
    "SendStatus",
    "SqliteSeen",
    "Suspend",
    "aio",
    "balance",
    "errors",
    "idempotent",
    "metrics",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gimbalmq.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gimbalmq' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
