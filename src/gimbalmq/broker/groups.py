"""Who is connected: the members of consumer groups and producer groups, by connection.

Java's rules (ConsumerManager, ConsumerGroupInfo, ProducerManager): a member is a connection, not
a client id; the newest heartbeat decides what a group is and which topics it has; a subscription
is replaced only by one with a higher version. This file decides when a change counts; it tells
nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from gimbalmq.broker.effects import Channel
from gimbalmq.wire.bodies import ConsumerData
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["CHANNEL_LIFE_MS", "ConsumerGroup", "ConsumerTable", "Member", "ProducerTable"]

#: A connection whose last heartbeat is older is closed by the scan.
CHANNEL_LIFE_MS: Final = 120_000

BROADCASTING: Final = "BROADCASTING"


class Member(msgspec.Struct):
    """One connection of a group."""

    client_id: str
    language: str
    version: int
    seen_ms: int


class ConsumerGroup:
    """A group as its newest heartbeat describes it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Channel, Member] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type = "CONSUME_PASSIVELY"
        self.message_model = "CLUSTERING"
        self.consume_from_where = "CONSUME_FROM_LAST_OFFSET"
        #: Of the newest heartbeat in the second form; None before the first of them.
        self.fingerprint: int | None = None

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message; such groups are not told of changes."""
        return self.message_model == BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        """One entry per connection, also when two have the same id."""
        return [member.client_id for member in self.members.values()]

    def channel_of(self, client_id: str) -> Channel | None:
        """A connection of that client id."""
        for channel, member in self.members.items():
            if member.client_id == client_id:
                return channel
        return None

    def update_member(self, channel: Channel, data: ConsumerData, member: Member) -> bool:
        """Refresh a connection; whether it is a new one. The last heartbeat describes the group."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = channel in self.members
        # A known connection with another client id is no change: the list just shows the new id.
        self.members[channel] = member
        return not known

    def update_subscriptions(self, data: ConsumerData) -> bool:
        """Take the subscriptions of a heartbeat over; whether the set of topics changed."""
        changed = False
        for wanted in data.subscriptions:
            known = self.subscriptions.get(wanted.topic)
            if known is None:
                changed = True
                self.subscriptions[wanted.topic] = wanted
            elif wanted.version_ms > known.version_ms:
                self.subscriptions[wanted.topic] = wanted
        topics = {wanted.topic for wanted in data.subscriptions}
        for topic in self.subscriptions.keys() - topics:
            changed = True
            del self.subscriptions[topic]
        return changed


class ConsumerTable:
    """All consumer groups of one broker."""

    def __init__(self, *, channel_life_ms: int = CHANNEL_LIFE_MS) -> None:
        self._channel_life_ms = channel_life_ms
        self._groups: dict[str, ConsumerGroup] = {}

    def group(self, name: str) -> ConsumerGroup | None:
        """A group that has members, or None."""
        return self._groups.get(name)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def register(
        self,
        data: ConsumerData,
        channel: Channel,
        member: Member,
        *,
        keep_subscriptions: bool = False,
    ) -> tuple[ConsumerGroup, bool]:
        """Take one group of a heartbeat; whether its members or topics have changed.

        `keep_subscriptions` is the second form of the heartbeat, which leaves them out.
        """
        group = self._groups.get(data.group)
        if group is None:
            group = self._groups[data.group] = ConsumerGroup(data.group)
        joined = group.update_member(channel, data, member)
        resubscribed = not keep_subscriptions and group.update_subscriptions(data)
        return group, joined or resubscribed

    def fingerprint_changed(self, name: str, fingerprint: int, *, short: bool) -> bool:
        """Remember a heartbeat's fingerprint; whether the group had a different one before.

        A `short` heartbeat leaves out subscriptions that must be known from an earlier one: where
        they are not, the answer is yes, which makes the client send them. Otherwise the pulls of
        such a group would be refused after a restart of the broker until its queues change.
        """
        group = self._groups.get(name)
        if group is None:
            return False
        before, group.fingerprint = group.fingerprint, fingerprint
        if short and (before is None or not group.subscriptions):
            return True
        return before is not None and before != fingerprint

    def unregister(self, name: str, channel: Channel) -> ConsumerGroup | None:
        """Take a connection out of a group; returns the group while it has others.

        As in Java the caller need not have been a member for the others to be told.
        """
        group = self._groups.get(name)
        if group is None:
            return None
        group.members.pop(channel, None)
        if not group.members:
            del self._groups[name]
            return None
        return group

    def channel_closed(self, channel: Channel) -> list[ConsumerGroup]:
        """Take a connection out of all groups; returns the groups that go on without it."""
        left = [group.name for group in self._groups.values() if channel in group.members]
        groups = (self.unregister(name, channel) for name in left)
        return [group for group in groups if group is not None]

    def expire(self, now_ms: int) -> tuple[list[Channel], list[ConsumerGroup]]:
        """Remove silent connections: those to close, and the groups that go on without them."""
        silent: list[Channel] = []
        touched: list[ConsumerGroup] = []
        for group in self:
            old = [
                channel
                for channel, member in group.members.items()
                if now_ms - member.seen_ms > self._channel_life_ms
            ]
            for channel in old:
                del group.members[channel]
            silent += old
            if not group.members:
                del self._groups[group.name]
            elif old:
                touched.append(group)
        return list(dict.fromkeys(silent)), touched

    def connections(self) -> dict[str, Channel]:
        """Every client id that is connected as a consumer, with one connection of it."""
        return {
            member.client_id: channel
            for group in self._groups.values()
            for channel, member in group.members.items()
        }

    def ids_of(self, channel: Channel) -> set[str]:
        """The client ids that a connection has given."""
        return {
            group.members[channel].client_id
            for group in self._groups.values()
            if channel in group.members
        }

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups whose members subscribe to a topic now."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]


class ProducerTable:
    """All producer groups of one broker, and where each client id can be reached."""

    def __init__(self, *, channel_life_ms: int = CHANNEL_LIFE_MS) -> None:
        self._channel_life_ms = channel_life_ms
        self._groups: dict[str, dict[Channel, Member]] = {}
        self._turn = 0

    def register(self, group: str, channel: Channel, member: Member) -> None:
        """Take one producer group of a heartbeat."""
        self._groups.setdefault(group, {})[channel] = member

    def unregister(self, group: str, channel: Channel) -> None:
        """Take a connection out of a group."""
        members = self._groups.get(group, {})
        members.pop(channel, None)
        if not members:
            self._groups.pop(group, None)

    def channel_closed(self, channel: Channel) -> None:
        """Take a connection out of all groups."""
        for group in [name for name, members in self._groups.items() if channel in members]:
            self.unregister(group, channel)

    def expire(self, now_ms: int) -> list[Channel]:
        """Remove silent connections; returns those to close."""
        silent = {
            channel: group
            for group, members in self._groups.items()
            for channel, member in members.items()
            if now_ms - member.seen_ms > self._channel_life_ms
        }
        for channel in silent:
            self.channel_closed(channel)
        return list(silent)

    def members(self, group: str) -> dict[Channel, Member]:
        """The connections of a group; empty when unknown."""
        return dict(self._groups.get(group, {}))

    def groups(self) -> dict[str, dict[Channel, Member]]:
        """Every group with its connections."""
        return {name: dict(members) for name, members in self._groups.items()}

    def any_channel(self, group: str) -> Channel | None:
        """A connection of a group, each in turn; None when it has none."""
        members = list(self._groups.get(group, {}))
        if not members:
            return None
        self._turn += 1
        return members[self._turn % len(members)]

    def channel_of(self, client_id: str) -> Channel | None:
        """A connection of that client id."""
        for members in self._groups.values():
            for channel, member in members.items():
                if member.client_id == client_id:
                    return channel
        return None
