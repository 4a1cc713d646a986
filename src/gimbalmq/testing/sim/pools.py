"""The pools of threads of a broker, as far as they are seen from outside: what overtakes what.

A broker hands each request to the pool of its kind, and threads of a pool run side by side. So
requests of one connection are not carried out in the order in which they came, nor answered in it.
Decides for how long a request waits; must not know what it does.
"""

from __future__ import annotations

import random
from typing import Final

from gimbalmq.wire.codes import RequestCode

__all__ = ["SLOW_FRAMES", "Pools"]

_code = RequestCode
#: Which kinds share a pool, as in Apache RocketMQ 5.5; all others are the administrators'.
_POOLS: Final = {
    _code.SEND_MESSAGE: "send",
    _code.SEND_MESSAGE_V2: "send",
    _code.CONSUMER_SEND_MSG_BACK: "send",
    _code.PULL_MESSAGE: "pull",
    _code.HEART_BEAT: "heartbeat",
    _code.UNREGISTER_CLIENT: "client",
    _code.GET_CONSUMER_LIST_BY_GROUP: "consumer",
    _code.UPDATE_CONSUMER_OFFSET: "consumer",
    _code.QUERY_CONSUMER_OFFSET: "consumer",
    # What the broker itself asks for leaves on the thread that found a reason to.
    _code.NOTIFY_CONSUMER_IDS_CHANGED: "notices",
}
#: How busy a pool can be: which share of its requests waits, and for how long at most. With the
#: slowest frames there and back it stays below the shortest time-out of a client, 1 s for locks:
#: connections that are given up are another matter.
_LOADS: Final = ((0.0, 0.0), (0.3, 0.02), (0.3, 0.2), (0.2, 0.4))
#: How much longer the slowest frames take than others, so that this holds.
SLOW_FRAMES: Final = 40.0


class Pools:
    """How long the requests to one broker wait."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._loads: dict[str, tuple[float, float]] = {}

    def wait_s(self, code: int) -> float:
        """For how long the next request of a kind waits; a pool keeps its load for a whole run."""
        name = _POOLS.get(code, "admin")  # type: ignore[call-overload]
        load = self._loads.get(name)
        if load is None:
            load = self._loads[name] = self._chance.choice(_LOADS)
        share, longest_s = load
        if self._chance.random() >= share:
            return 0.0
        return self._chance.uniform(0.0, longest_s)
