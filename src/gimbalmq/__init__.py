"""Load balancing for Apache RocketMQ, in Python, with data pipelines on Spark.

Names are loaded when they are first used, so importing the package is quick, starts nothing, and
needs no optional dependency.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gimbalmq import balance as balance
    from gimbalmq import errors as errors
    from gimbalmq.client.admin import Admin
    from gimbalmq.client.lite_pull_consumer import LitePullConsumer
    from gimbalmq.client.producer import Producer
    from gimbalmq.client.pull_consumer import PullConsumer
    from gimbalmq.client.push_consumer import PushConsumer
    from gimbalmq.core.fault import FaultTolerance
    from gimbalmq.flows.admin_offsets import QueueOffsets
    from gimbalmq.model.message import Message, SendResult, SendStatus
    from gimbalmq.model.queue import MessageQueue
    from gimbalmq.model.verdict import Commit, DeadLetter, RetryLater, Rollback, Suspend
    from gimbalmq.wire.record import PullResult, ReceivedMessage

__version__ = "0.1.0"

_HOMES = {
    "Admin": "gimbalmq.client.admin",
    "Commit": "gimbalmq.model.verdict",
    "DeadLetter": "gimbalmq.model.verdict",
    "FaultTolerance": "gimbalmq.core.fault",
    "LitePullConsumer": "gimbalmq.client.lite_pull_consumer",
    "Message": "gimbalmq.model.message",
    "MessageQueue": "gimbalmq.model.queue",
    "Producer": "gimbalmq.client.producer",
    "PullConsumer": "gimbalmq.client.pull_consumer",
    "PullResult": "gimbalmq.wire.record",
    "PushConsumer": "gimbalmq.client.push_consumer",
    "QueueOffsets": "gimbalmq.flows.admin_offsets",
    "ReceivedMessage": "gimbalmq.wire.record",
    "RetryLater": "gimbalmq.model.verdict",
    "Rollback": "gimbalmq.model.verdict",
    "SendResult": "gimbalmq.model.message",
    "SendStatus": "gimbalmq.model.message",
    "Suspend": "gimbalmq.model.verdict",
}
_MODULES = frozenset({"balance", "errors"})

__all__ = [
    "Admin",
    "Commit",
    "DeadLetter",
    "FaultTolerance",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PushConsumer",
    "QueueOffsets",
    "ReceivedMessage",
    "RetryLater",
    "Rollback",
    "SendResult",
    "SendStatus",
    "Suspend",
    "balance",
    "errors",
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
