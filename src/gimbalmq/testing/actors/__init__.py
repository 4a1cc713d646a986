"""What a Java peer hosts, as Python objects: producer, consumers, administrator.

Made by the methods of `JavaPeer`; each call is one request to the process. The other side of each
is in `java/`.
"""

from gimbalmq.testing.actors.actor import Actor, Allocation
from gimbalmq.testing.actors.admin import JavaAdmin, JavaAnswer, JavaMember, JavaRoute
from gimbalmq.testing.actors.consumers import JavaLitePull, JavaPushConsumer, JavaReceived
from gimbalmq.testing.actors.producer import JavaProducer, JavaSent

__all__ = [
    "Actor",
    "Allocation",
    "JavaAdmin",
    "JavaAnswer",
    "JavaLitePull",
    "JavaMember",
    "JavaProducer",
    "JavaPushConsumer",
    "JavaReceived",
    "JavaRoute",
    "JavaSent",
]
