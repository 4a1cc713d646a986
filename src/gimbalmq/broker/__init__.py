"""The embedded cluster: a durable name server and brokers in pure Python, on one machine.

For development, demos and tests; it speaks RocketMQ's protocol, so that Java clients can use it
too. It is no production broker: there is no replication.

    from gimbalmq.broker import EmbeddedCluster

    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=8)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gimbalmq.broker.access import Account, load_accounts
    from gimbalmq.broker.cluster import EmbeddedBroker, EmbeddedCluster
    from gimbalmq.broker.settings import BrokerSettings
    from gimbalmq.broker.tls import ServerTls

__all__ = [
    "Account",
    "BrokerSettings",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "ServerTls",
    "load_accounts",
]

#: Imported when asked for, so that the store and the machines can be used without the servers.
_HOMES: Final = {
    "Account": "gimbalmq.broker.access",
    "BrokerSettings": "gimbalmq.broker.settings",
    "EmbeddedBroker": "gimbalmq.broker.cluster",
    "EmbeddedCluster": "gimbalmq.broker.cluster",
    "ServerTls": "gimbalmq.broker.tls",
    "load_accounts": "gimbalmq.broker.access",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gimbalmq.broker' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
