"""Queue locks on a broker.

A broker knows the owner of a lock by the client id in the request and nothing else, so these
flows take the id: a survivor may unlock in the name of a member that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gimbalmq.errors import BrokerError, TransportError
from gimbalmq.flows.effects import Flow, checked_call
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.bodies import LockBody, decode_locked, encode_lock
from gimbalmq.wire.headers import lock_request, unlock_request

__all__ = ["lock", "unlock", "unlock_for"]

#: Java's time-out for locks.
_TIMEOUT_S = 1.0


def lock(
    address: str,
    group: str,
    client_id: str,
    queues: Sequence[MessageQueue],
    timeout_s: float = _TIMEOUT_S,
) -> Flow[frozenset[MessageQueue]]:
    """Take or renew locks on one broker; returns the queues that are now this member's."""
    body = encode_lock(LockBody(group, client_id, tuple(queues)))
    answer = yield from checked_call(address, lock_request(queues[0].broker, body), timeout_s)
    return decode_locked(answer.body)


def unlock(
    address: str,
    group: str,
    client_id: str,
    queues: Sequence[MessageQueue],
    timeout_s: float = _TIMEOUT_S,
) -> Flow[None]:
    """Give locks back and wait until the broker has noted it."""
    body = encode_lock(LockBody(group, client_id, tuple(queues)))
    yield from checked_call(address, unlock_request(queues[0].broker, body), timeout_s)


def unlock_for(
    addresses: Mapping[str, Sequence[MessageQueue]],
    group: str,
    dead: Iterable[str],
    timeout_s: float = _TIMEOUT_S,
) -> Flow[None]:
    """Take the locks of members that are gone off these queues, by broker address.

    A broker that cannot be reached is passed over: its locks cannot be had either.
    """
    for client_id in sorted(dead):
        for address, queues in addresses.items():
            try:
                yield from unlock(address, group, client_id, queues, timeout_s)
            except (TransportError, BrokerError):
                continue
