"""Clients: heartbeats, members, locks, shares by the broker, and what is passed on to them.

Follows ClientManageProcessor, ConsumerManageProcessor, QueryAssignmentProcessor and the lock
requests of AdminBrokerProcessor.
"""

from __future__ import annotations

import contextlib

import msgspec

from gimbalmq.broker import fields
from gimbalmq.broker.effects import Channel, Close, RefusalError, Send
from gimbalmq.broker.filters import filter_of
from gimbalmq.broker.groups import ConsumerGroup, Member
from gimbalmq.broker.state import BrokerState, Handler
from gimbalmq.broker.store.api import StoreError
from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.bodies.shape import write_document
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to
from gimbalmq.wire.ids import parse_offset_id
from gimbalmq.wire.names import retry_topic
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["ClientProcessor"]


class ClientProcessor:
    """Keeps the tables of clients."""

    def __init__(self, state: BrokerState, now_ms: int) -> None:
        self._state = state
        self._next_scan_ms = now_ms + state.settings.channel_scan_ms

    @property
    def handlers(self) -> dict[int, Handler]:
        """What this processor answers."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._consumer_status,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._producers,
        }

    @property
    def next_due_ms(self) -> int:
        """When silent connections are looked for."""
        return self._next_scan_ms

    def tick(self, now_ms: int) -> None:
        """Close connections that have not sent a heartbeat for long."""
        if now_ms < self._next_scan_ms:
            return
        state = self._state
        self._next_scan_ms = now_ms + state.settings.channel_scan_ms
        silent, touched = state.consumers.expire(now_ms)
        silent += state.producers.expire(now_ms)
        for channel in dict.fromkeys(silent):
            state.effects.append(Close(channel, "no heartbeat for too long"))
        if not state.settings.faithful:
            # Java leaves the survivors to their timers here.
            for group in touched:
                state.notify(group)
        state.locks.expire(now_ms)

    def channel_closed(self, channel: Channel) -> None:
        """Take a closed connection out of all groups, and tell the others."""
        state = self._state
        touched = state.consumers.channel_closed(channel)
        state.producers.channel_closed(channel)
        state.locks.channel_closed(channel, state.consumers.connections())
        for group in touched:
            state.notify(group)

    # Membership

    def _heartbeat(self, request: Command, channel: Channel, now_ms: int) -> Command:
        heartbeat = bodies.decode_heartbeat(request.body)
        member = Member(heartbeat.client_id, request.language, request.version, now_ms)
        fingerprint = heartbeat.fingerprint
        subscriptions_changed = False
        for data in heartbeat.consumers:
            if not self._make_group(data.group, now_ms):
                continue
            group, changed = self._state.consumers.register(
                data,
                channel,
                msgspec.structs.replace(member),
                keep_subscriptions=fingerprint != 0 and heartbeat.without_subscriptions,
            )
            if fingerprint:
                # Java's brokers do not ask for what they have lost.
                asked = heartbeat.without_subscriptions and not self._state.settings.faithful
                subscriptions_changed |= self._state.consumers.fingerprint_changed(
                    data.group, fingerprint, short=asked
                )
            if changed:
                self._state.notify(group)
        for name in heartbeat.producers:
            self._state.producers.register(name, channel, msgspec.structs.replace(member))
        return response_to(
            request,
            fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": _text(subscriptions_changed or not fingerprint),
            },
        )

    def _make_group(self, group: str, now_ms: int) -> bool:
        """Whether the group may be; its retry topic is made along the way."""
        config = self._state.groups.find(group, now_ms) if group else None
        if config is None:
            return False
        if config.retry_queues > 0:
            try:
                self._state.topics.ensure(retry_topic(group), config.retry_queues, now_ms)
            except StoreError as error:
                # It is made with the next heartbeat; who only reads can go on without it.
                self._state.trouble = str(error)
        return True

    def _unregister(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del now_ms
        producers = fields.text_or(request, "producerGroup")
        if producers:
            self._state.producers.unregister(producers, channel)
        consumers = fields.text_or(request, "consumerGroup")
        if consumers:
            group = self._state.consumers.unregister(consumers, channel)
            if group is not None:
                self._state.notify(group)
        return response_to(request)

    def _check_client(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        subscription = bodies.decode_check_client(request.body)
        if not subscription.is_sql:
            return response_to(request)
        if not self._state.settings.property_filter:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                + subscription.expression_type,
            )
        _check_expression(subscription)
        return response_to(request)

    def _consumer_list(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        name = fields.text(request, "consumerGroup")
        group = self._state.consumers.group(name)
        if group is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return response_to(request, body=bodies.encode_consumer_list(group.client_ids))

    # Locks

    def _lock(self, request: Command, channel: Channel, now_ms: int) -> Command:
        lock = _lock_body(request)
        granted = self._state.locks.lock(lock.group, lock.client_id, lock.queues, channel, now_ms)
        return response_to(request, body=bodies.encode_locked(granted))

    def _unlock(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del now_ms
        lock = _lock_body(request)
        consumers = self._state.consumers
        self._state.locks.unlock(
            lock.group,
            lock.client_id,
            lock.queues,
            own_id=lock.client_id in consumers.ids_of(channel),
            connected=lock.client_id in consumers.connections(),
        )
        return response_to(request)

    # Passed on to clients

    def _running_info(self, request: Command, channel: Channel, now_ms: int) -> None:
        self._state.relay(request, channel, self._online(request), now_ms)

    def _consume_directly(self, request: Command, channel: Channel, now_ms: int) -> None:
        target = self._online(request)
        place = parse_offset_id(fields.text(request, "msgId"))
        record = self._state.store.record_at(place.offset)
        if record is None:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"there is no message at offset {place.offset}"
            )
        request.fields.setdefault("brokerName", self._state.settings.name)
        self._state.relay(request, channel, target, now_ms, body=bytes(record))

    def _online(self, request: Command) -> Channel:
        name = fields.text(request, "consumerGroup")
        client_id = fields.text_or(request, "clientId")
        group = self._state.consumers.group(name)
        channel = None if group is None else group.channel_of(client_id)
        if channel is None:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online"
            )
        return channel

    def _consumer_status(self, request: Command, channel: Channel, now_ms: int) -> None:
        """Ask every member, or one, where it stands; answer when all have, or time is up."""
        name = fields.text(request, "group")
        group = self._state.consumers.group(name)
        if group is None:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{name}]"
            )
        # Java's name for it, but what its tools give and its brokers compare is the client id.
        wanted = fields.text_or(request, "clientAddr")
        members = {
            target: member.client_id
            for target, member in group.members.items()
            if wanted in {"", member.client_id}
        }
        _StatusRound(self._state, request, channel, members).start(now_ms)

    # Connections

    def _consumer_connections(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        name = fields.text(request, "consumerGroup")
        group = self._state.consumers.group(name)
        if group is None:
            raise RefusalError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        return response_to(request, body=bodies.encode_consumer_connection(_connection(group)))

    def _producer_connections(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        name = fields.text(request, "producerGroup")
        members = self._state.producers.members(name)
        if not members:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return response_to(request, body=bodies.encode_producer_connection(_clients(members)))

    def _producers(self, request: Command, channel: Channel, now_ms: int) -> Command:
        del channel, now_ms
        table = {
            group: [
                {
                    "clientId": member.client_id,
                    "language": member.language,
                    "lastUpdateTimestamp": member.seen_ms,
                    "remoteIP": where.address,
                    "version": member.version,
                }
                for where, member in members.items()
            ]
            for group, members in self._state.producers.groups().items()
        }
        return response_to(request, body=write_document({"data": table}))


class _StatusRound:
    """One question to several members, and the answer made of theirs."""

    def __init__(
        self, state: BrokerState, request: Command, asker: Channel, members: dict[Channel, str]
    ) -> None:
        self._state = state
        self._request = request
        self._asker = asker
        self._members = members
        self._missing = len(members)
        self._tables: dict[str, dict[MessageQueue, int]] = {}

    def start(self, now_ms: int) -> None:
        given = {
            "topic": fields.text(self._request, "topic"),
            "group": fields.text(self._request, "group"),
        }
        if not self._members:
            self._finish()
        for channel, client_id in self._members.items():
            self._state.ask(
                channel,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                dict(given),
                b"",
                now_ms,
                lambda answer, _, client_id=client_id: self._take(client_id, answer),  # type: ignore[misc]
            )

    def _take(self, client_id: str, answer: Command | None) -> None:
        if answer is not None and answer.code == 0:
            # What cannot be read is no answer: who asked must not wait for a better one.
            with contextlib.suppress(ProtocolError):
                self._tables[client_id] = bodies.decode_consumer_status(answer.body).queues
        self._missing -= 1
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        status = bodies.ConsumerStatus({}, self._tables)
        answer = response_to(self._request, body=bodies.encode_consumer_status(status))
        self._state.effects.append(Send(self._asker, answer))


def _text(value: object) -> str:
    return "true" if value else "false"


def _lock_body(request: Command) -> bodies.LockBody:
    lock = bodies.decode_lock(request.body)
    if not lock.group or not lock.client_id:
        raise RefusalError(
            ResponseCode.SYSTEM_ERROR, "a lock request needs consumerGroup and clientId"
        )
    return lock


def _check_expression(subscription: SubscriptionData) -> None:
    try:
        filter_of(subscription)
    except ConfigurationError as error:
        raise RefusalError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error


def _clients(members: dict[Channel, Member]) -> list[bodies.ClientConnection]:
    return [
        bodies.ClientConnection(member.client_id, channel.address, member.language, member.version)
        for channel, member in members.items()
    ]


def _connection(group: ConsumerGroup) -> bodies.ConsumerConnection:
    return bodies.ConsumerConnection(
        tuple(_clients(group.members)),
        dict(group.subscriptions),
        group.consume_type,
        group.message_model,
        group.consume_from_where,
    )
