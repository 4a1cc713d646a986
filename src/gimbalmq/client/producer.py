"""Sending messages from the calling thread.

A sync send writes, waits and reads on the thread that calls it: handing it to another thread
would cost more than the send. The instance behind it keeps routes fresh and registers the
producer with the brokers.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from gimbalmq.client.shared import SharedInstance, share, wire_client_id
from gimbalmq.core.identity import FALLBACK_STRATEGY
from gimbalmq.core.selection import RoundRobin, queue_by_key
from gimbalmq.errors import ConfigurationError, StateError, TopicNotFoundError
from gimbalmq.flows.outgoing import Outgoing, SendSettings, prepare
from gimbalmq.flows.route import fetch_publish_route
from gimbalmq.flows.send import Attempt, send
from gimbalmq.model.message import Message, SendResult
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import TopicRoute
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.transport.address import local_ip, parse_nameservers
from gimbalmq.wire.headers import send_request
from gimbalmq.wire.ids import UniqueIds, month_start_ms
from gimbalmq.wire.names import check_group

__all__ = ["Producer", "QueueSelector"]

#: Picks one of the queues for a message.
QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Producer:
    """Sends messages; a context manager, safe to use from several threads.

    Each thread walks round robin over the queues of all brokers from a random start; a send that
    fails is tried on another broker, within `timeout_s` in all. An unknown topic is created by
    the broker, where brokers allow that.

        with Producer("shop", nameserver="127.0.0.1:9876") as producer:
            result = producer.send(Message("orders", b"...", keys=["42"], tags="paid"))

    Args:
        group: The producer group, a name for producers of one kind.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        timeout_s: For one send, all attempts together.
        retries: How many more brokers to try after a failure.
        client_id: A name for this client; producers and consumers with equal names in one
            process share their connections. None makes a unique one.
        max_message_size, compress_msg_body_over_howmuch, default_topic_queue_nums: As in Java.
        poll_name_server_interval_s, heartbeat_broker_interval_s: As in Java.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        timeout_s: float = 3.0,
        retries: int = 2,
        client_id: str | None = None,
        max_message_size: int = 4 << 20,
        compress_msg_body_over_howmuch: int = 4096,
        default_topic_queue_nums: int = 4,
        poll_name_server_interval_s: float = 30.0,
        heartbeat_broker_interval_s: float = 30.0,
    ) -> None:
        self.group = check_group(group)
        if timeout_s <= 0:
            raise ConfigurationError(f"timeout_s is {timeout_s}: give seconds above 0")
        if retries < 0:
            raise ConfigurationError(f"retries is {retries}: give 0 or more")
        self._nameservers = parse_nameservers(nameserver)
        self._timeout_s = timeout_s
        self._attempts_max = 1 + retries
        self._settings = SendSettings(
            max_message_size=max_message_size,
            compress_msg_body_over_howmuch=compress_msg_body_over_howmuch,
            default_topic_queue_nums=default_topic_queue_nums,
        )
        self._instance_settings = InstanceSettings(
            poll_name_server_interval_s=poll_name_server_interval_s,
            heartbeat_broker_interval_s=heartbeat_broker_interval_s,
        )
        # A producer needs no strategy; the default lets it share a consumer's instance.
        self.client_id = wire_client_id(client_id, FALLBACK_STRATEGY)
        self._shared: SharedInstance | None = None
        self._routes: dict[str, tuple[TopicRoute, tuple[MessageQueue, ...]]] = {}
        self._ids = UniqueIds(local_ip(), os.getpid(), secrets.randbits(32))
        self._month_started_ms = month_start_ms(datetime.now(UTC).astimezone())
        self._ring = threading.local()

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start; needed unless the producer is used as a context manager."""
        if self._shared is not None:
            raise StateError(f"producer of group '{self.group}' is already started")
        shared = share(self.client_id, self._nameservers, self._instance_settings)
        self._shared = shared
        shared.run(lambda: shared.instance.add_producer(self.group))
        return self

    def stop(self) -> None:
        """Tell the brokers and let go of the connections; safe to call again."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        gone = threading.Event()
        shared.post(lambda: shared.instance.remove_producer(self.group, gone.set))
        gone.wait(self._timeout_s)
        shared.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---- sending -----------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            message: What to send.
            queue: Send to exactly this queue.
            selector: Picks one of the topic's queues, which is then the only one tried, as it is
                with `queue` and with a message's `sharding_key`.
            timeout_s: Instead of the producer's own.

        Raises:
            SendError: no broker stored it; says what was tried on which broker.
            TopicNotFoundError: the topic does not exist and is not created by brokers.
        """
        shared = self._running()
        now_ms = time.time_ns() // 1_000_000
        outgoing = prepare(message, self._ids.next(now_ms, self._month_started_ms), self._settings)
        route, queues = self._publish_queues(message.topic)
        chosen = self._chosen(message, queues, queue, selector)
        ring = self._round_robin()

        def next_attempt(failed_broker: str | None) -> Attempt:
            target = chosen or ring.next(queues, avoid_broker=failed_broker)
            return self._attempt(route, target, outgoing, now_ms)

        return shared.inline(
            send(
                next_attempt,
                message_id=outgoing.message_id,
                attempts_max=self._attempts_max if chosen is None else 1,
                timeout_s=self._timeout_s if timeout_s is None else timeout_s,
            )
        )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic are sent to, in the order of the round robin."""
        return self._publish_queues(topic)[1]

    def _running(self) -> SharedInstance:
        if self._shared is None:
            raise StateError(
                f"producer of group '{self.group}' is not running: use it in a with statement, "
                "or call start() first"
            )
        return self._shared

    def _round_robin(self) -> RoundRobin:
        ring: RoundRobin | None = getattr(self._ring, "robin", None)
        if ring is None:
            ring = self._ring.robin = RoundRobin(secrets.randbits(32))
        return ring

    @staticmethod
    def _chosen(
        message: Message,
        queues: tuple[MessageQueue, ...],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
    ) -> MessageQueue | None:
        if queue is not None and selector is not None:
            raise ConfigurationError("send takes a queue or a selector, not both")
        if selector is not None:
            queue = selector(queues, message)
        if queue is not None:
            if queue not in queues:
                raise ConfigurationError(
                    f"queue {queue.path} is not one of the {len(queues)} queues of topic "
                    f"'{message.topic}'"
                )
            return queue
        if message.sharding_key is not None:
            return queue_by_key(queues, message.sharding_key)
        return None

    def _attempt(
        self, route: TopicRoute, queue: MessageQueue, outgoing: Outgoing, born_ms: int
    ) -> Attempt:
        brokers = route.broker(queue.broker)
        # An order configuration may name a broker that is gone.
        if brokers is None or brokers.master is None:
            raise TopicNotFoundError(
                f"broker '{queue.broker}' of {queue.path} has no master in the route", code=17
            )
        request = send_request(
            group=self.group,
            queue=queue,
            body=outgoing.body,
            properties=outgoing.properties,
            born_timestamp_ms=born_ms,
            sys_flag=outgoing.sys_flag,
            default_topic_queues=self._settings.default_topic_queue_nums,
        )
        return Attempt(queue, brokers.master, request)

    # ---- routes ------------------------------------------------------------------------------

    def _publish_queues(self, topic: str) -> tuple[TopicRoute, tuple[MessageQueue, ...]]:
        shared = self._running()
        known = self._routes.get(topic)
        latest = shared.instance.routes.route(topic)
        if known is not None and (latest is None or known[0] is latest):
            return known
        route = latest if latest is not None else self._fetch(shared, topic)
        queues = route.publish_queues()
        if not queues and latest is not None:
            route = self._fetch(shared, topic)
            queues = route.publish_queues()
        if not queues:
            raise TopicNotFoundError(
                f"topic '{topic}' has no queue that can be written to: no broker of its route has "
                "both a master and write permission",
                code=17,
            )
        self._routes[topic] = route, queues
        return route, queues

    def _fetch(self, shared: SharedInstance, topic: str) -> TopicRoute:
        route = shared.inline(
            fetch_publish_route(
                shared.instance.nameservers,
                topic,
                template_queues=self._settings.default_topic_queue_nums,
            )
        )
        shared.post(lambda: shared.instance.publish_to(route))
        return route
