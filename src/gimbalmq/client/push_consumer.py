"""A member of a consumer group that gets its messages handed to a listener, on threads.

Starts and stops the member and the threads that run its listeners. What is consumed, and by which
rules, is read and kept by `PushSubscriber`.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self, cast

from gimbalmq.client.access import Access
from gimbalmq.client.consumer_trace import ConsumerTrace
from gimbalmq.client.events import event_message, event_settings
from gimbalmq.client.hooks import with_hooks
from gimbalmq.client.lifetime import Lifetime
from gimbalmq.client.membership import Membership
from gimbalmq.client.push_subscriber import PushSubscriber
from gimbalmq.client.sender import Sender
from gimbalmq.client.shared import SharedInstance
from gimbalmq.client.watched import Watched
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.runtime.consumer_host import ConsumerHost
from gimbalmq.runtime.coroutines import (
    CoroutineListener,
    CoroutineThread,
    is_coroutine_listener,
)
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.runtime.listening import Listener, Listening
from gimbalmq.runtime.results import Results
from gimbalmq.runtime.workers import WorkerPool
from gimbalmq.telemetry.running import began, ended

__all__ = ["PushConsumer"]


class PushConsumer(PushSubscriber[Membership], Watched, Lifetime):
    """Consumes topics together with the other members of its group, Java members included.

    A listener that returns has consumed its message; one that raises gets it again later, at
    first after 10 s, then after longer and longer pauses, and after 16 attempts the message goes
    to the dead letters. `RetryLater` and `DeadLetter` say so on purpose. Messages are delivered
    at least once: a listener may see one again after a crash or a change of members.

        consumer = PushConsumer("billing", nameserver="127.0.0.1:9876")

        @consumer.subscribe("orders", tags="paid || refunded")
        def bill(message):
            print(message.queue, message.queue_offset, message.body)

        consumer.run()                # Ctrl-C drains, commits, leaves the group

    Args:
        group: The consumer group.
        nameserver: `host:port`, several separated by `;`; None reads `NAMESRV_ADDR`.
        allocation: How the group shares its queues; every member needs the same. A name, or
            what `gimbalmq.balance.strategy` makes.
        lease: Own a queue only with its lock, so that a clean hand-over delivers nothing twice.
            All members must be ours, and all must set it.
        ordered: Consume each queue one message after the other, each by one member at a time. A
            listener that raises is called again with the same message after a pause.
        auto_commit: False lets listeners of an ordered group return `Commit` or `Rollback`.
        broadcasting: Every member gets every message; offsets are kept in a local file, and what
            a listener raises on is not delivered again.
        start_from: Where to start in a queue that the group has not read yet: `"last"` (its end),
            `"first"` (its beginning) or an aware datetime.
        client_id: A name for this member, unique in the group; None makes one.
        batch_size: Up to how many messages a listener gets at once; with 1, the default, it gets
            a message, otherwise a list.
        workers: Threads that run listeners.
        rebalance_interval_s, pull_idle_limit_s, persist_consumer_offset_interval_s,
        poll_name_server_interval_s, heartbeat_broker_interval_s: Timers, with Java's defaults.
        rebalance_min_interval_s, rebalance_retry_s: Least pause between two passes, and the first
            pause after one that was incomplete.
        mq_client_api_timeout_s, offset_timeout_s, lock_timeout_s: How long servers may take to
            answer: in general, about offsets, about locks.
        pull_interval_s: Pause between two pulls of a queue that has messages.
        broker_suspend_max_time_s, consumer_timeout_when_suspend_s: How long a broker may hold a
            pull while there is nothing new, and how long it is waited for.
        pull_time_delay_when_exception_s, pull_time_delay_when_flow_control_s: Pause after a pull
            that failed, and after one that a broker refused because it has too much to do.
        redeliver_s: Pause before a message that no broker takes back is delivered again here.
        pull_batch_size, pull_threshold_for_queue, pull_threshold_size_for_queue (MiB),
        consume_concurrently_max_span, max_reconsume_times: As in Java (-1: 16 attempts; in ordered
            groups, for ever).
        pulls_ahead: How many pulls, over all queues, may be under way for messages that were not
            asked for yet, while there is much to read (0: one pull per queue, as in Java).
        suspend_current_queue_time_s: Pause of an ordered queue after a failure.
        lock_renew_s, lock_trust_s: How often queue locks are renewed, and for how long one counts;
            the same for all members.
        lock_retry_s: Pause before a lock that somebody else has is asked for again.
        take_over_grace_s, take_over_foreign_grace_s: How long a member must be gone before its
            locks are taken over; in groups with foreign members only when the second is given,
            above 30 s.
        rejoin_grace_s: How long the queues of a member that is gone wait for it, while no other
            queue moves. Needs `client_id`, and `lease` or `ordered`; all members have to set the
            same. None: not at all.
        weights_interval_s: How often published weights are looked for, with an allocation that
            uses them.
        access_key, secret_key, tls, address_map, namespace, namesrv_domain: How the cluster is
            reached; see `AccessOptions`.
        local_offset_store_dir: Where a broadcasting member keeps its offsets.
        release_drain_s: How long running listeners may go on when a queue moves away.
        parallel_by: `"key"` consumes the keys of a queue in parallel and the messages of one key
            (their sharding key, else their first key) one after the other. In an ordered group
            a failure then pauses its key only, and several workers share a queue.
        pull_threshold_for_topic, pull_threshold_size_for_topic (MiB): Instead of the limits for a
            queue, ones to divide by the number of held queues (-1: off).
        consume_timeout_s: A message of a concurrent group that a listener has had for this long
            is sent back and delivered again (None: never).
        hung_listener_s: A listener that has had a message for this long is reported with its stack
            (None: never); see `on_hung`.
        enable_trace, trace_topic: Write message traces as Java's clients do.
        use_heartbeat_v2: Leave subscriptions out of heartbeats to brokers that remember them.
        events: Where to keep the history of rebalances, which `gimbalmq group history` shows: a
            file (a Path, or a text with a dot or a slash), or else the name of a topic.

    A listener may be a coroutine function: it runs on an event loop of the consumer's own, up to
    `workers` of them at a time.
    """

    def _new_membership(self, access: Access, timers: InstanceSettings) -> Membership:
        self._pool: WorkerPool | None = None
        self._coroutines = CoroutineThread(self.group)
        self._trace: ConsumerTrace | None = None
        return Membership(self.group, self.client_id, access, timers)

    def _busy(self) -> int:
        return 0 if self._pool is None else len(self._pool.running())

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Join the group and start to consume.

            consumer.start()
            try:
                print(consumer.state)
            finally:
                consumer.stop()

        Raises:
            TransportError: no name server can be reached.
            StateError: started twice, or nothing is subscribed.
        """
        self._check_startable()
        try:
            self._membership.start(self._build)
        except BaseException:
            self._end_threads()
            raise
        began(self)
        return self

    def _build(self, shared: SharedInstance, now_ms: int) -> ConsumerHost:
        host = self._new_host(shared.instance, now_ms)
        finished = Results(shared.post, host.finished)
        if self._trace_topic is not None:
            self._trace = ConsumerTrace(shared, self._wire_group, self._trace_topic)
        if self._events_topic is not None:
            self._tell_topic(shared, self._events_topic)
        listening = Listening(self._call_for, self._listener_settings)
        self._pool = WorkerPool(
            self.group,
            listening,
            finished,
            workers=self._workers,
            soon=shared.post,
            owner=shared.errands,
        )
        host.attach(self._pool, listening, self._workers)
        for alarm in self._new_alarms(self._coroutines.stack_of):
            host.watch(alarm)
        self._pool.start()
        return host

    def _tell_topic(self, shared: SharedInstance, topic: str) -> None:
        settings = event_settings(self.group, self._names.name)
        sender = Sender(shared, settings)

        def tell(report: RebalanceReport) -> None:
            message = event_message(report, self.client_id, topic)
            sender.send(message, None, None, settings.timeout_s)

        self.on_rebalance(tell)
        self.on_moved(tell)

    def _surrounded(self, listener: Listener) -> Listener:
        if is_coroutine_listener(listener):
            listener = self._coroutines.blocking(cast("CoroutineListener", listener))
        if self._trace is not None:
            listener = self._trace.around(listener)
        return with_hooks(listener, tuple(self._before), tuple(self._after))

    def check_sql(self, topic: str, sql: str) -> None:
        """Have the brokers of a topic read an SQL expression, while running.

            consumer.check_sql("orders", "amount > 100")

        Raises:
            ConfigurationError: one of them refuses it.
        """
        self._membership.shared.inline(self._check_sql_flow(topic, sql))

    def stop(self, drain_s: float = 10.0) -> None:
        """Let running listeners finish, store the offsets, leave the group; safe to call again.

            consumer.stop(drain_s=30.0)

        Args:
            drain_s: How long to wait for running listeners; messages of those that take longer
                are delivered again, to the next owner of their queue.
        """
        self._membership.stop(drain_s, self._end_threads)

    def _end_threads(self) -> None:
        ended(self)
        if self._pool is not None:
            self._pool.stop()
            self._coroutines.stop()
            self._pool.join(1.0)
        if self._trace is not None:
            self._trace.stop(3.0)
        if self._local is not None:
            self._local.close()

    def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, then stop.

            if __name__ == "__main__":
                consumer.run()

        Call it on the main thread.
        """
        signalled = threading.Event()

        def end(_number: int, _frame: FrameType | None) -> None:
            signalled.set()

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.start()
            signalled.wait()
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)
