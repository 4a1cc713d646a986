"""What a broker tells Prometheus of itself, from its tables alone."""

from __future__ import annotations

from gimbalmq.broker.state import BrokerState
from gimbalmq.telemetry import catalogue as cat
from gimbalmq.telemetry.families import Family

__all__ = ["broker_families"]


def broker_families(state: BrokerState, connections: int) -> list[Family]:
    """The metrics of one broker; called by whoever owns the tables."""
    broker, store, offsets = state.settings.name, state.store, state.offsets
    ends = {
        (topic, queue): store.bounds(topic, queue)[1]
        for topic in store.topics()
        for queue in store.queues(topic)
    }
    return [
        cat.BROKER_QUEUE_MESSAGES.family(
            cat.BROKER_QUEUE_MESSAGES.sample(end, topic, broker, str(queue))
            for (topic, queue), end in ends.items()
        ),
        cat.BROKER_LAG.family(
            cat.BROKER_LAG.sample(
                max(0, ends.get((topic, queue), committed) - committed),
                group,
                topic,
                broker,
                str(queue),
            )
            for topic, group in offsets
            for queue, committed in offsets.queues(topic, group).items()
        ),
        cat.BROKER_GROUP_MEMBERS.family(
            cat.BROKER_GROUP_MEMBERS.sample(len(group.client_ids), broker, group.name)
            for group in state.consumers
        ),
        cat.BROKER_CONNECTIONS.family([cat.BROKER_CONNECTIONS.sample(connections, broker)]),
    ]
