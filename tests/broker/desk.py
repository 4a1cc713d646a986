"""A broker machine on a desk: a clock that stands still, channels by name, answers to look at."""

from __future__ import annotations

import itertools
import random

from gimbalmq.broker.broker import BrokerMachine
from gimbalmq.broker.documents import JsonDocuments
from gimbalmq.broker.effects import Announce, Channel, Close, Lookup, Send
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store import open_store
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import FLAG_ONEWAY, Command, response_to
from gimbalmq.wire.headers import lock_request, pull_request, send_request, unlock_request
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.subscription import SubscriptionData, parse_tags

START_MS = 1_700_000_000_000


class Desk:
    """Drives one machine; `ask` returns the answer to that request, None while it waits."""

    def __init__(self, folder, access=None, store=None, disk=None, **settings):
        self.folder = folder
        self.store_options = store
        self.disk = disk
        self.settings = BrokerSettings(**settings)
        self.access = access
        self.now_ms = START_MS
        self.sent = []
        self.closed = []
        self.announced = 0
        self.lookups = []
        self._opaque = itertools.count(1)
        self._numbers = itertools.count(1)
        self._open()

    def _open(self):
        self.store = open_store(
            self.folder,
            store_host=("127.0.0.1", 10911),
            options=self.store_options,
            disk=self.disk,
        )
        self.machine = BrokerMachine(
            self.settings,
            self.store,
            JsonDocuments(self.store.documents),
            random.Random(1),
            self.now_ms,
            access=self.access,
        )

    def close(self):
        self.store.close()

    def restart(self, *, clean=True):
        if clean:
            self.machine.save()
        self.store.close()
        self._open()

    def channel(self, host="127.0.0.1"):
        number = next(self._numbers)
        return Channel(number, host, 40_000 + number)

    def ask(self, channel, code, fields=None, body=b"", **given):
        request = (
            code if isinstance(code, Command) else Command(code, dict(fields or {}), body, **given)
        )
        request.opaque = next(self._opaque)
        self.take(self.machine.handle(request, channel, self.now_ms))
        return self.answer(channel, request.opaque)

    def hold(self, channel, request):
        """Send a request that is to wait; returns its number."""
        assert self.ask(channel, request) is None
        return request.opaque

    def tell(self, channel, code, fields=None, body=b""):
        """A one-way request; returns everything that it caused."""
        request = Command(code, dict(fields or {}), body, next(self._opaque), FLAG_ONEWAY)
        effects = self.machine.handle(request, channel, self.now_ms)
        self.take(effects)
        return effects

    def answer(self, channel, opaque):
        for index, (where, command) in enumerate(self.sent):
            if where is channel and command.is_response and command.opaque == opaque:
                return self.sent.pop(index)[1]
        return None

    def pushed(self, channel, code=None):
        """Requests of the broker to a client, removed from what is noted."""
        found = [
            (where, command)
            for where, command in self.sent
            if where is channel and not command.is_response and code in {None, command.code}
        ]
        self.sent = [one for one in self.sent if one not in found]
        return [command for _, command in found]

    def noticed(self, channel):
        """Groups of which the client was told that they changed."""
        pushed = self.pushed(channel, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        return [command.fields["consumerGroup"] for command in pushed]

    def reply(self, channel, request, **given):
        """A client's answer to a request of the broker."""
        self.take(self.machine.handle(response_to(request, **given), channel, self.now_ms))

    def take(self, effects):
        for effect in effects:
            match effect:
                case Send(channel, command, slices):
                    if slices:
                        command.body = b"".join(slices)
                    self.sent.append((channel, command))
                case Close(channel):
                    self.closed.append(channel)
                case Announce():
                    self.announced += 1
                case Lookup(topic):
                    self.lookups.append(topic)

    def advance(self, ms, step_ms=500):
        """Let time pass, ticking as a front would."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + step_ms)
            self.take(self.machine.tick(self.now_ms))

    def lose(self, channel):
        self.take(self.machine.channel_closed(channel, self.now_ms))

    # Everyday requests

    def topic(self, name, queues=4, perm=6, **more):
        answer = self.ask(
            self.channel(),
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": name,
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": str(perm),
                "topicFilterType": "SINGLE_TAG",
                "order": "false",
                **more,
            },
        )
        assert answer.code == 0, answer.remark

    def heartbeat(self, channel, client_id, *groups, producers=(), topics=("orders",), **given):
        """A heartbeat of consumers of `groups`, all with the same topics."""
        version = given.pop("version_ms", 1)
        kind = given.pop("message_model", "CLUSTERING")
        subscriptions = given.pop("subscriptions", None)
        if subscriptions is None:
            subscriptions = tuple(parse_tags(topic, "*", version) for topic in topics)
        data = bodies.HeartbeatData(
            client_id,
            tuple(
                bodies.ConsumerData(group, message_model=kind, subscriptions=subscriptions)
                for group in groups
            ),
            tuple(producers),
            given.pop("fingerprint", 0),
            given.pop("without_subscriptions", False),
        )
        return self.ask(channel, RequestCode.HEART_BEAT, body=bodies.encode_heartbeat(data))

    def send(self, topic="orders", body=b"hello", queue=0, properties="", channel=None, **given):
        request = send_request(
            group="shop",
            queue=MessageQueue(topic, "broker-a", queue),
            body=body,
            properties=properties,
            born_timestamp_ms=self.now_ms,
            **given,
        )
        return self.ask(channel or self.channel(), request)

    def pull(self, offset=0, topic="orders", queue=0, group="billing", expression="*", **given):
        """The answer to a pull that brings its own subscription."""
        return self.ask(
            given.pop("channel", None) or self.channel(),
            self.pull_command(offset, topic, queue, group, expression, **given),
        )

    def pull_command(
        self, offset=0, topic="orders", queue=0, group="billing", expression="*", **given
    ):
        return pull_request(
            group=group,
            queue=MessageQueue(topic, "broker-a", queue),
            offset=offset,
            sys_flag=given.pop("sys_flag", 4),
            expression=expression,
            **given,
        )

    def messages(self, topic="orders", queue=0, group="reader"):
        """Everything in a queue."""
        found, offset = [], self.store.bounds(topic, queue)[0]
        while True:
            answer = self.pull(offset, topic, queue, group)
            if answer.code != 0:
                return found
            found += decode_records(answer.body, "broker-a")
            offset = int(answer.fields["nextBeginOffset"])

    def bodies(self, topic="orders", queue=0):
        return [message.body for message in self.messages(topic, queue)]

    def members(self, group):
        answer = self.ask(
            self.channel(), RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
        )
        return None if answer.code else list(bodies.decode_consumer_list(answer.body))

    def lock(self, channel, client_id, *numbers, group="billing"):
        body = bodies.encode_lock(bodies.LockBody(group, client_id, _queues(numbers)))
        answer = self.ask(channel, lock_request("broker-a", body))
        return sorted(queue.queue_id for queue in bodies.decode_locked(answer.body))

    def unlock(self, channel, client_id, *numbers, group="billing"):
        body = bodies.encode_lock(bodies.LockBody(group, client_id, _queues(numbers)))
        assert self.ask(channel, unlock_request("broker-a", body)).code == 0

    def committed(self, topic="orders", queue=0, group="billing", **more):
        return self.ask(
            self.channel(),
            RequestCode.QUERY_CONSUMER_OFFSET,
            {"topic": topic, "queueId": str(queue), "consumerGroup": group, **more},
        )

    def commit(self, offset, topic="orders", queue=0, group="billing"):
        return self.ask(
            self.channel(),
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {
                "topic": topic,
                "queueId": str(queue),
                "consumerGroup": group,
                "commitOffset": str(offset),
            },
        )


def _queues(numbers):
    return tuple(MessageQueue("orders", "broker-a", number) for number in numbers)


def sql(topic, expression, version_ms=1):
    return SubscriptionData(topic, expression, version_ms=version_ms, expression_type="SQL92")
