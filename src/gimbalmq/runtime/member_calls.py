"""Carries out what a consumer has to say to its group: who is there, who is gone, that it is here.

Every question goes to the brokers in the order in which all members ask. What follows from the
answers is the machine's business; what others ask this member is in `member_answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gimbalmq.core.consumer import effects as fx
from gimbalmq.core.consumer import events as ev
from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow
from gimbalmq.flows.group import ask_absent, check_subscriptions, list_everywhere, list_members
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["MemberCalls"]


class MemberCalls:
    """The questions of one group's member; `subscriptions` are shared with its host."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        subscriptions: dict[str, SubscriptionData],
        dispatch: Callable[[ev.Event], None],
    ) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions = subscriptions
        self._dispatch = dispatch
        self._timeout_s = instance.settings.mq_client_api_timeout_s

    def list_members(self, _effect: fx.ListMembers) -> None:
        """Ask who is in the group."""

        def listed(result: tuple[str, ...] | GimbalError) -> None:
            if isinstance(result, GimbalError):
                self._dispatch(ev.MembersListed(None, str(result)))
            else:
                self._dispatch(ev.MembersListed(result))

        brokers = self._instance.routes.any_addresses(self._subscriptions)
        self._instance.driver.spawn(list_members(brokers, self._group, self._timeout_s), listed)

    def list_everywhere(self, _effect: fx.ListEverywhere) -> None:
        """Ask every broker who is in the group."""

        def listed(result: dict[str, frozenset[str]] | GimbalError) -> None:
            lists = None if isinstance(result, GimbalError) else result
            self._dispatch(ev.ListedEverywhere(lists))

        brokers = self._instance.broker_addresses()
        self._instance.driver.spawn(list_everywhere(brokers, self._group, self._timeout_s), listed)

    def ask_absent(self, effect: fx.AskAbsent) -> None:
        """Ask other members for how long others are gone."""

        def told(result: dict[str, float] | GimbalError | None) -> None:
            self._dispatch(ev.AbsentTold(None if isinstance(result, GimbalError) else result))

        brokers = self._instance.routes.any_addresses(self._subscriptions)
        self._instance.driver.spawn(
            ask_absent(brokers, self._group, effect.members, self._timeout_s), told
        )

    def check(self, filtered: Sequence[SubscriptionData]) -> Flow[None]:
        """Ask the brokers whether they understand some subscriptions."""
        places = {one.topic: self._instance.routes.any_addresses((one.topic,)) for one in filtered}
        yield from check_subscriptions(
            places, self._instance.client_id, self._group, filtered, self._timeout_s
        )

    def renew_heartbeat(self, effect: fx.RenewHeartbeat) -> None:
        """Tell every broker of this member again; changed topics get a newer version."""
        wall_ms = self._instance.driver.now().wall_ms
        for topic in effect.changed:
            known = self._subscriptions[topic]
            version_ms = max(wall_ms, known.version_ms + 1)
            self._subscriptions[topic] = msgspec.structs.replace(known, version_ms=version_ms)
        self._instance.registrations.forget_fingerprints()
        self._instance.heartbeat()
