"""What brokers have been told of this client in heartbeats, and what they keep of it.

Makes heartbeats and reads their answers; when one is sent, and to whom, is the instance's business.
A broker keeps a registration for as long as the connection that it came on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import broker_error
from gimbalmq.wire.bodies import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
    heartbeat_fingerprint,
)
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command

__all__ = ["Registrations"]

#: Java registers this producer group with every client; brokers expect no more of it.
_INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"


class Registrations:
    """The heartbeats of one client, and what each address has confirmed of them.

    With `brief` heartbeats leave subscriptions out, where a broker remembers them.
    """

    def __init__(self, client_id: str, warn: Callable[[str, str], None], *, brief: bool) -> None:
        self._client_id = client_id
        self._warn = warn
        self._brief = brief
        #: Subscription versions by topic that each address has confirmed, by group.
        self._confirmed: dict[tuple[str, str], dict[str, int]] = {}
        #: Fingerprint of the heartbeat whose subscriptions each address remembers.
        self._remembered: dict[str, int] = {}

    # ---- questions ---------------------------------------------------------------------------

    def has(self, address: str, group: str) -> bool:
        """Whether a broker has confirmed a group's member on the present connection."""
        return (address, group) in self._confirmed

    def version(self, address: str, group: str, topic: str) -> int:
        """The newest subscription version that a broker knows; pulls must not be newer."""
        known = self._confirmed.get((address, group))
        return 0 if known is None else known.get(topic, 0)

    # ---- heartbeats --------------------------------------------------------------------------

    def heartbeat(
        self, consumers: Iterable[ConsumerData], producers: Iterable[str]
    ) -> HeartbeatData:
        """What all brokers are to be told."""
        groups = sorted({_INNER_PRODUCER, *producers})
        beat = HeartbeatData(self._client_id, tuple(consumers), tuple(groups))
        if not self._brief:
            return beat
        fingerprint = heartbeat_fingerprint(encode_heartbeat(beat))
        return msgspec.structs.replace(beat, fingerprint=fingerprint)

    def body(self, beat: HeartbeatData, address: str) -> bytes:
        """What one broker is told: no more than it does not remember."""
        if beat.fingerprint and self._remembered.get(address) == beat.fingerprint:
            beat = msgspec.structs.replace(
                beat,
                consumers=tuple(
                    msgspec.structs.replace(one, subscriptions=()) for one in beat.consumers
                ),
                without_subscriptions=True,
            )
        return encode_heartbeat(beat)

    def answered(
        self, beat: HeartbeatData, address: str, answer: Command | GimbalError
    ) -> GimbalError | None:
        """Note what a broker has now; returns why it has nothing, if so."""
        if isinstance(answer, GimbalError):
            self._warn(f"heartbeat {address}", f"heartbeat to {address} failed: {answer}")
            return answer
        if answer.code != ResponseCode.SUCCESS:
            self._warn(f"heartbeat {address}", f"{address} refused the heartbeat: {answer.remark}")
            return broker_error(address, Command(int(RequestCode.HEART_BEAT)), answer)
        self._note(beat, address, answer)
        return None

    def _note(self, beat: HeartbeatData, address: str, answer: Command) -> None:
        understands = answer.fields.get("IS_SUPPORT_HEART_BEAT_V2") == "true"
        if beat.fingerprint and understands and answer.fields.get("IS_SUB_CHANGE") == "false":
            self._remembered[address] = beat.fingerprint
        else:
            self._remembered.pop(address, None)
        # Also when they were left out: then they are those that it was told before.
        for one in beat.consumers:
            self._confirmed[address, one.group] = {
                data.topic: data.version_ms for data in one.subscriptions
            }

    # ---- forgetting --------------------------------------------------------------------------

    def forget_fingerprints(self) -> None:
        """Send subscriptions in full again: their versions changed, or a broker lacks them."""
        self._remembered.clear()

    def lost(self, address: str) -> None:
        """A broker forgets who was registered on a connection that is gone."""
        for key in [key for key in self._confirmed if key[0] == address]:
            del self._confirmed[key]
        self._remembered.pop(address, None)
