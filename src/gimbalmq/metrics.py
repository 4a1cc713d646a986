"""Metrics of the clients in this process, for Prometheus.

from gimbalmq import metrics

metrics.serve(9464)          # http://127.0.0.1:9464/metrics, every running client included
"""

from __future__ import annotations

from gimbalmq import aio
from gimbalmq.client.lite_pull_consumer import LitePullConsumer
from gimbalmq.client.producer import Producer
from gimbalmq.client.producer_stats import ProducerStats
from gimbalmq.client.push_consumer import PushConsumer
from gimbalmq.client.stats import ConsumerStats, Probe
from gimbalmq.errors import StateError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.telemetry import catalogue as cat
from gimbalmq.telemetry.endpoint import Endpoint, metrics_page
from gimbalmq.telemetry.exposition import expose
from gimbalmq.telemetry.families import Family, Metric, joined
from gimbalmq.telemetry.running import running

__all__ = ["collect", "consumer_families", "producer_families", "serve", "text"]


def serve(port: int, *, host: str = "127.0.0.1") -> Endpoint:
    """Answer `/metrics` over HTTP, until `stop` of what is returned; every request looks anew.

    Args:
        port: Where to listen; 0 takes a free one, which the endpoint's `port` tells.
        host: The address to listen on; "0.0.0.0" is every one of this machine.

    Raises:
        ConfigurationError: the port is taken.
    """
    return Endpoint({"/metrics": lambda: metrics_page(text())}, port, host=host).start()


def text() -> str:
    """The metrics of every running client, in Prometheus' text form."""
    return expose(collect())


def collect() -> list[Family]:
    """The metrics of every running client, as values."""
    families: list[Family] = []
    for client in running():
        try:
            families += _families(client)
        except (StateError, TimeoutError):
            continue  # stopped since it was listed, or on a loop that is busy
    return joined(families)


def _families(client: object) -> list[Family]:
    match client:
        case PushConsumer() | LitePullConsumer():
            probe = client.probe()
            return (
                consumer_families(client.stats(), probe)
                if probe.answered
                else _silent(client.group)
            )
        case Producer():
            return producer_families(client.stats())
        case aio.PushConsumer() | aio.LitePullConsumer():
            return _loop_consumer(client)
        case aio.Producer():
            return producer_families(client.from_thread(client.stats))
    return []


def _loop_consumer(consumer: aio.PushConsumer | aio.LitePullConsumer) -> list[Family]:
    try:
        return consumer_families(
            *consumer.from_thread(lambda: (consumer.stats(), consumer.probe()))
        )
    except TimeoutError:
        return _silent(consumer.group)


def _silent(group: str) -> list[Family]:
    """The metrics of a consumer that does not answer: it does not consume."""
    return [_of(metric, 0, group) for metric in (cat.CONSUMER_LIVE, cat.CONSUMER_READY)]


def consumer_families(stats: ConsumerStats, probe: Probe) -> list[Family]:
    """The metrics of one consumer, from what it tells."""
    group = stats.group
    outcomes = {
        "consumed": stats.consumed,
        "failed": stats.failed,
        "retried": stats.retried,
        "expired": stats.expired,
    }
    moves = {"acquired": stats.acquired, "revoked": stats.revoked}
    return [
        cat.CONSUMER_LAG.family(
            cat.CONSUMER_LAG.sample(one.lag, group, *_path(one.queue))
            for one in stats.queues
            if one.lag is not None
        ),
        cat.CONSUMER_PAUSE.family(
            cat.CONSUMER_PAUSE.sample(one.pause_s, group, *_path(one.queue))
            for one in stats.queues
            if one.pause_s is not None
        ),
        _of(cat.CONSUMER_QUEUES, len(stats.queues), group),
        cat.CONSUMER_MESSAGES.family(
            cat.CONSUMER_MESSAGES.sample(count, group, outcome)
            for outcome, count in outcomes.items()
        ),
        _of(cat.CONSUMER_IN_FLIGHT, stats.cached, group),
        _of(cat.CONSUMER_HUNG, stats.hung_now, group),
        _of(cat.CONSUMER_OUTLIVED, stats.outlived, group),
        cat.CONSUMER_REBALANCES.family(
            cat.CONSUMER_REBALANCES.sample(count, group, trigger)
            for trigger, count in stats.rebalances_by_trigger.items()
        ),
        cat.CONSUMER_MOVES.family(
            cat.CONSUMER_MOVES.sample(count, group, direction) for direction, count in moves.items()
        ),
        _of(cat.CONSUMER_LIVE, probe.live, group),
        _of(cat.CONSUMER_READY, probe.ready, group),
    ]


def producer_families(stats: ProducerStats) -> list[Family]:
    """The metrics of one producer, from what it tells."""
    group, brokers = stats.group, stats.brokers
    return [
        cat.PRODUCER_ATTEMPTS.family(
            cat.PRODUCER_ATTEMPTS.sample(count, group, one.broker, outcome)
            for one in brokers
            for outcome, count in (
                ("stored", one.stored),
                ("refused", one.refused),
                ("failed", one.failed),
            )
        ),
        cat.PRODUCER_SEND.family(stats.latencies),
        cat.PRODUCER_ISOLATED.family(
            cat.PRODUCER_ISOLATED.sample(one.isolated_s > 0, group, one.broker) for one in brokers
        ),
        cat.PRODUCER_ISOLATION.family(
            cat.PRODUCER_ISOLATION.sample(one.isolated_s, group, one.broker) for one in brokers
        ),
        _of(cat.PRODUCER_IN_FLIGHT, stats.in_flight, group),
        _of(cat.PRODUCER_BYTES_IN_FLIGHT, stats.in_flight_bytes, group),
    ]


def _of(metric: Metric, value: float, group: str) -> Family:
    return metric.family([metric.sample(value, group)])


def _path(queue: MessageQueue) -> tuple[str, str, str]:
    return queue.topic, queue.broker, str(queue.queue_id)
