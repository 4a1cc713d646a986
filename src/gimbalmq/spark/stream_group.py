"""What a stream has to do with its consumer group: nobody else in it, and offsets told to it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from gimbalmq.errors import GimbalError, StateError, TransportError
from gimbalmq.flows.admin import fetch_cluster
from gimbalmq.flows.effects import Flow, broker_error, call
from gimbalmq.flows.offset import hand_over, store_offset
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.inline import ConnectionPool, run_inline
from gimbalmq.spark.options import ReadOptions
from gimbalmq.spark.stream_offsets import Offsets
from gimbalmq.spark.topic_lookup import unreachable
from gimbalmq.wire.bodies import decode_consumer_connection
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command

__all__ = ["GroupOffsets", "refuse_members"]

_log = logging.getLogger("gimbalmq.spark")

_TIMEOUT_S = 3.0


def refuse_members(options: ReadOptions, group: str) -> Flow[None]:
    """Make sure that nobody is in the group: everything would be read twice.

    A broker that does not answer is left out: members are connected to all.

    Raises:
        StateError: somebody is, by name.
        TransportError: no broker answers.
    """
    try:
        info = yield from fetch_cluster(NameServers(options.nameservers), _TIMEOUT_S)
    except TransportError as error:
        raise unreachable(error, options) from error
    members: set[str] = set()
    failure: TransportError | None = None
    answered = False
    for name, brokers in sorted(info.brokers.items()):
        address = brokers.any_address
        if address is None:
            continue
        fields = {"consumerGroup": group, "bname": name}
        request = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
        try:
            answer = yield from call(address, request, _TIMEOUT_S)
        except TransportError as error:
            failure = error
            continue
        answered = True
        if answer.code == ResponseCode.SUCCESS:
            found = decode_consumer_connection(answer.body)
            members.update(one.client_id for one in found.connections)
        elif answer.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise broker_error(address, request, answer)
    if members:
        raise StateError(
            f"option 'group': group '{group}' has live members ({', '.join(sorted(members))}), "
            "which read the same messages: name another group, stop them, or share the queues "
            "with them by setting option 'groupMode' to member"
        )
    if failure is not None and not answered:
        raise failure


class GroupOffsets:
    """Tells the brokers how far a group is; remembers what they know.

    The checkpoint is the truth for the query, so a commit that fails is only logged, and made up
    for with the next one.
    """

    def __init__(self, group: str, pool: ConnectionPool) -> None:
        self._group = group
        self._pool = pool
        self._told: Offsets = {}

    def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        addresses: Mapping[MessageQueue, str],
        *,
        lost: frozenset[MessageQueue] = frozenset(),
    ) -> None:
        """Store offsets that differ from those told before; of queues without address, later.

        `lost` are queues that another member may have by now: its offset is not moved back.
        """
        silent: set[str] = set()
        for queue, offset in offsets.items():
            address = addresses.get(queue)
            if address is None or address in silent or self._told.get(queue) == offset:
                continue
            store = hand_over if queue in lost else store_offset
            try:
                run_inline(store(address, self._group, queue, offset), self._pool)
            except GimbalError as error:
                silent.add(address)
                _log.warning(
                    "the offsets of group '%s' on %s are not stored now: %s",
                    self._group,
                    address,
                    error,
                )
            else:
                self._told[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Somebody else may store the offset of a queue from now on."""
        self._told.pop(queue, None)
