"""The test kit: real RocketMQ clusters and Java peers to hold code against.

from gimbalmq.testing import ApacheRocketMQ

with ApacheRocketMQ(brokers=2) as cluster:
    cluster.create_topic("orders", queues=8)
"""

from __future__ import annotations

from gimbalmq.testing.actors import (
    JavaAdmin,
    JavaLitePull,
    JavaProducer,
    JavaPushConsumer,
    JavaReceived,
    JavaSent,
)
from gimbalmq.testing.apache import ApacheBroker, ApacheRocketMQ
from gimbalmq.testing.mqadmin import mqadmin
from gimbalmq.testing.peers import JavaPeer

__all__ = [
    "ApacheBroker",
    "ApacheRocketMQ",
    "JavaAdmin",
    "JavaLitePull",
    "JavaPeer",
    "JavaProducer",
    "JavaPushConsumer",
    "JavaReceived",
    "JavaSent",
    "mqadmin",
]
