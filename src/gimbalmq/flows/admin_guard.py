"""What a watcher of a group asks and does on brokers: look at the lists, release locks, wake.

Decides nothing; `core.guard` says when.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gimbalmq.core.guard import BrokerLook, GroupLook, ListedMember
from gimbalmq.errors import BrokerError, TopicNotFoundError, TransportError
from gimbalmq.flows.admin import broker_address, fetch_cluster
from gimbalmq.flows.admin_groups import BrokerView, GroupView, view_broker
from gimbalmq.flows.effects import Flow, checked_call
from gimbalmq.flows.lock import unlock
from gimbalmq.flows.route import NameServers, fetch_route
from gimbalmq.model.queue import MessageQueue, sorted_queues
from gimbalmq.wire.codes import version_name
from gimbalmq.wire.headers import unregister_request

__all__ = ["Seen", "release_locks", "see_group", "wake_group"]

#: Brokers take the connection, not this name, for the one that leaves: nobody is put out.
_GUARD_ID: Final = "gimbalmq-guard"


class Seen(msgspec.Struct, frozen=True):
    """One look: what to decide on, and what the brokers said in full."""

    look: GroupLook
    view: GroupView


def see_group(nameservers: NameServers, group: str, timeout_s: float) -> Flow[Seen]:
    """Ask every broker for its list; one that cannot be asked is part of the answer."""
    info = yield from fetch_cluster(nameservers, timeout_s)
    looks: list[BrokerLook] = []
    views: list[BrokerView] = []
    for name in sorted(info.brokers):
        try:
            view = yield from view_broker(
                name, broker_address(info.brokers[name]), group, timeout_s
            )
        except (BrokerError, TransportError):
            looks.append(BrokerLook(name, None))
            continue
        views.append(view)
        listed = () if view.connection is None else view.connection.connections
        members = tuple(ListedMember(one.client_id, version_name(one.version)) for one in listed)
        looks.append(BrokerLook(name, members))
    whole = GroupView(group, tuple(views))
    return Seen(GroupLook(tuple(looks), whole.broadcasting), whole)


def release_locks(
    nameservers: NameServers,
    group: str,
    topics: Iterable[str],
    members: Iterable[str],
    timeout_s: float,
) -> Flow[dict[str, str]]:
    """Take the locks of these members off every queue of the topics.

    A broker removes only what is locked under the very id, so queues of others are left alone.
    Returns what failed, by broker.
    """
    queues: dict[str, list[MessageQueue]] = {}
    addresses: dict[str, str] = {}
    for topic in sorted(topics):
        try:
            route = yield from fetch_route(nameservers, topic, timeout_s)
        except TopicNotFoundError:
            continue  # a retry topic that was never needed
        for queue in sorted_queues(route.subscribe_queues()):
            brokers = route.broker(queue.broker)
            # Locks live on masters only.
            if brokers is not None and brokers.master is not None:
                queues.setdefault(queue.broker, []).append(queue)
                addresses[queue.broker] = brokers.master
    failures: dict[str, str] = {}
    for client_id in sorted(members):
        for broker, listed in queues.items():
            try:
                yield from unlock(addresses[broker], group, client_id, listed)
            except (BrokerError, TransportError) as error:
                failures[broker] = str(error)
    return failures


def wake_group(nameservers: NameServers, group: str, timeout_s: float) -> Flow[dict[str, str]]:
    """Make brokers tell all members that the group has changed; returns what failed, by broker.

    A broker does so when a client leaves, also one that never was in the group.
    """
    info = yield from fetch_cluster(nameservers, timeout_s)
    failures: dict[str, str] = {}
    for name in sorted(info.brokers):
        request = unregister_request(name, _GUARD_ID, consumer_group=group)
        try:
            yield from checked_call(broker_address(info.brokers[name]), request, timeout_s)
        except (BrokerError, TransportError) as error:
            failures[name] = str(error)
    return failures
