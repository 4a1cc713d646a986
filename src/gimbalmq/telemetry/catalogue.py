"""Every metric that clients, workers and the embedded broker expose: names, meanings, labels.

The one list that the reference page and the dashboard are checked against. All names start with
`gimbalmq_`; units stand last, in seconds and bytes; what only grows ends in `_total`.
"""

from __future__ import annotations

from typing import Final

from gimbalmq.telemetry.families import Kind, Metric

__all__ = [
    "BROKER_CONNECTIONS",
    "BROKER_GROUP_MEMBERS",
    "BROKER_LAG",
    "BROKER_QUEUE_MESSAGES",
    "CATALOGUE",
    "CONSUMER_HUNG",
    "CONSUMER_IN_FLIGHT",
    "CONSUMER_LAG",
    "CONSUMER_LIVE",
    "CONSUMER_MESSAGES",
    "CONSUMER_MOVES",
    "CONSUMER_OUTLIVED",
    "CONSUMER_PAUSE",
    "CONSUMER_QUEUES",
    "CONSUMER_READY",
    "CONSUMER_REBALANCES",
    "PRODUCER_ATTEMPTS",
    "PRODUCER_BYTES_IN_FLIGHT",
    "PRODUCER_IN_FLIGHT",
    "PRODUCER_ISOLATED",
    "PRODUCER_ISOLATION",
    "PRODUCER_SEND",
    "WORKER_CHILDREN",
    "WORKER_RELOADS",
    "WORKER_RESTARTS",
]

_QUEUE: Final = ("topic", "broker", "queue")
_SEND_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip

CONSUMER_LAG: Final = Metric(
    "gimbalmq_consumer_lag_messages",
    Kind.GAUGE,
    "Messages of a queue that this member owns which are not consumed yet.",
    ("group", *_QUEUE),
)
CONSUMER_QUEUES: Final = Metric(
    "gimbalmq_consumer_queues", Kind.GAUGE, "Queues that this member owns.", ("group",)
)
CONSUMER_MESSAGES: Final = Metric(
    "gimbalmq_consumer_messages_total",
    Kind.COUNTER,
    "Messages by what came of them: consumed; failed, a listener raised; retried, a broker took it "
    "back, to deliver it again or to bury it; expired, its listener took too long.",
    ("group", "outcome"),
)
CONSUMER_IN_FLIGHT: Final = Metric(
    "gimbalmq_consumer_in_flight_messages",
    Kind.GAUGE,
    "Messages that were pulled and not consumed yet.",
    ("group",),
)
CONSUMER_HUNG: Final = Metric(
    "gimbalmq_consumer_hung_listeners",
    Kind.GAUGE,
    "Listeners that hang at present: they have run for longer than the alarm time.",
    ("group",),
)
CONSUMER_OUTLIVED: Final = Metric(
    "gimbalmq_consumer_outlived_locks_total",
    Kind.COUNTER,
    "Listeners that still ran when another member could have their queue: its lock was lost.",
    ("group",),
)
CONSUMER_REBALANCES: Final = Metric(
    "gimbalmq_consumer_rebalances_total",
    Kind.COUNTER,
    "Changes of this member's queues by what led to them: start; notice, a broker says that members "
    "changed; timer; route, queues of a topic changed; reconnect; retry, an earlier pass was "
    "incomplete; subscription; release, a queue was let go that is wanted again; resume; absence, a "
    "member did not come back in time; weights, others were published; lock, one was lost; offset, "
    "one was moved; stop.",
    ("group", "trigger"),
)
CONSUMER_MOVES: Final = Metric(
    "gimbalmq_consumer_moves_total",
    Kind.COUNTER,
    "Queues that came to this member (acquired) or left it (revoked).",
    ("group", "direction"),
)
CONSUMER_PAUSE: Final = Metric(
    "gimbalmq_consumer_pause_seconds",
    Kind.GAUGE,
    "For how long nobody here consumed a queue when it came: from the decision to the first pull.",
    ("group", *_QUEUE),
)
CONSUMER_LIVE: Final = Metric(
    "gimbalmq_consumer_live", Kind.GAUGE, "Members in this process that are alive.", ("group",)
)
CONSUMER_READY: Final = Metric(
    "gimbalmq_consumer_ready",
    Kind.GAUGE,
    "Members in this process that are in their group and consume.",
    ("group",),
)

PRODUCER_ATTEMPTS: Final = Metric(
    "gimbalmq_producer_attempts_total",
    Kind.COUNTER,
    "Attempts to send, by broker and by what came of them: stored, refused by the broker, failed "
    "on the way. A wire batch is one attempt.",
    ("group", "broker", "outcome"),
)
PRODUCER_SEND: Final = Metric(
    "gimbalmq_producer_send_seconds",
    Kind.HISTOGRAM,
    "From the start of a send until a broker had stored the message.",
    ("group", "broker"),
    _SEND_BOUNDS,
)
PRODUCER_ISOLATED: Final = Metric(
    "gimbalmq_producer_isolated",
    Kind.GAUGE,
    "Producers in this process that keep away from a broker (with fault tolerance).",
    ("group", "broker"),
)
PRODUCER_ISOLATION: Final = Metric(
    "gimbalmq_producer_isolation_seconds",
    Kind.GAUGE,
    "For how much longer a broker is kept away from.",
    ("group", "broker"),
)
PRODUCER_IN_FLIGHT: Final = Metric(
    "gimbalmq_producer_in_flight_messages",
    Kind.GAUGE,
    "Messages of send_async without a result yet.",
    ("group",),
)
PRODUCER_BYTES_IN_FLIGHT: Final = Metric(
    "gimbalmq_producer_in_flight_bytes",
    Kind.GAUGE,
    "Bytes of send_async without a result yet.",
    ("group",),
)

WORKER_CHILDREN: Final = Metric(
    "gimbalmq_worker_children", Kind.GAUGE, "Children of a worker by what they do.", ("state",)
)
WORKER_RESTARTS: Final = Metric(
    "gimbalmq_worker_restarts_total",
    Kind.COUNTER,
    "Children that died and were replaced.",
    ("worker",),
)
WORKER_RELOADS: Final = Metric(
    "gimbalmq_worker_reloads_total",
    Kind.COUNTER,
    "Reloads by how they ended: completed or halted.",
    ("outcome",),
)

BROKER_QUEUE_MESSAGES: Final = Metric(
    "gimbalmq_broker_queue_messages_total",
    Kind.COUNTER,
    "Messages ever stored in a queue: its next offset.",
    _QUEUE,
)
BROKER_LAG: Final = Metric(
    "gimbalmq_broker_lag_messages",
    Kind.GAUGE,
    "Messages of a queue beyond the offset that a group has committed.",
    ("group", *_QUEUE),
)
BROKER_GROUP_MEMBERS: Final = Metric(
    "gimbalmq_broker_group_members",
    Kind.GAUGE,
    "Members of a consumer group that are registered with a broker.",
    ("broker", "group"),
)
BROKER_CONNECTIONS: Final = Metric(
    "gimbalmq_broker_connections", Kind.GAUGE, "Connections that are open.", ("broker",)
)

#: All of them, in the order of the reference page.
CATALOGUE: Final = (
    CONSUMER_LAG,
    CONSUMER_QUEUES,
    CONSUMER_MESSAGES,
    CONSUMER_IN_FLIGHT,
    CONSUMER_HUNG,
    CONSUMER_OUTLIVED,
    CONSUMER_REBALANCES,
    CONSUMER_MOVES,
    CONSUMER_PAUSE,
    CONSUMER_LIVE,
    CONSUMER_READY,
    PRODUCER_ATTEMPTS,
    PRODUCER_SEND,
    PRODUCER_ISOLATED,
    PRODUCER_ISOLATION,
    PRODUCER_IN_FLIGHT,
    PRODUCER_BYTES_IN_FLIGHT,
    WORKER_CHILDREN,
    WORKER_RESTARTS,
    WORKER_RELOADS,
    BROKER_QUEUE_MESSAGES,
    BROKER_LAG,
    BROKER_GROUP_MEMBERS,
    BROKER_CONNECTIONS,
)
