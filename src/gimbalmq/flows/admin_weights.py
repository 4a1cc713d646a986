"""Learning with which published weights a running group shares out its queues.

The ids of members say whether they read published weights, not where: that is asked of them. What
counts is then read as they read it. What follows from the weights is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.core.allocation.weighted import PUBLISHED
from gimbalmq.core.identity import capability
from gimbalmq.errors import GimbalError, StateError
from gimbalmq.flows.admin_groups import GroupView, fetch_running_info
from gimbalmq.flows.effects import Flow, together
from gimbalmq.flows.route import NameServers
from gimbalmq.flows.weights import PublishedWeights, read_weights
from gimbalmq.wire.names import Namespace
from gimbalmq.wire.sharing import SHARING_PROPERTY, decode_sharing

__all__ = ["GroupWeights", "fetch_group_weights"]

_MARK: Final = f".{PUBLISHED}"


class GroupWeights(msgspec.Struct, frozen=True):
    """The published weights that members of a group use, in the names of their users.

    topic: Where they are published.
    weights: By queue path; a queue that is not there counts 1.
    versions: By the topic that they weigh; one that is not there has none published.
    """

    topic: str
    weights: Mapping[str, float]
    versions: Mapping[str, int]


def fetch_group_weights(
    nameservers: NameServers, view: GroupView, names: Namespace, timeout_s: float
) -> Flow[GroupWeights | None]:
    """Read the weights that the members of a group read; None when they read none.

    Args:
        nameservers: Where to ask for routes.
        view: The group, by its name on the wire.
        names: How its users name topics.
        timeout_s: For each request.

    Raises:
        StateError: members read published weights, and none of them said where.
        TransportError, BrokerError, ProtocolError: the weights cannot be read.
    """
    readers = [one for one in view.client_ids if _reads(one)]
    if not readers:
        return None
    topic = yield from _weights_topic(view, readers, timeout_s)
    found = yield from read_weights(
        nameservers, view.group, names.wire(topic), PublishedWeights(), timeout_s
    )
    weighed = [names.user(one) for one in sorted(view.topics)]
    return GroupWeights(
        topic,
        {path: weight for one in weighed for path, weight in found.weights(one).items()},
        {one: version for one in weighed if (version := found.version(one)) is not None},
    )


def _reads(client_id: str) -> bool:
    promised = capability(client_id)
    return promised is not None and _MARK in promised.strategy


def _weights_topic(view: GroupView, readers: list[str], timeout_s: float) -> Flow[str]:
    """What the first of them says that says it."""
    told = yield from together(fetch_running_info(view, one, timeout_s) for one in readers)
    for info in told:
        text = None if isinstance(info, GimbalError) else info.properties.get(SHARING_PROPERTY)
        topic = None if text is None else decode_sharing(text).weights_topic
        if topic is not None:
            return topic
    raise StateError(
        f"members of group '{view.group}' read published weights, and none of them answered from "
        f"which topic: {', '.join(readers)}"
    )
