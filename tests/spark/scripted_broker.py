"""A name server and broker in one, small enough to misbehave on purpose.

It keeps messages per queue and answers routes, offsets and pulls as Java does, with the faults
that a test asks for: lost connections, refusals, short answers, deleted messages.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections import deque

from gimbalmq.model.java import hash_code
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import encode_route, encode_topic_list
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import encode_command, response_to
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.properties import encode_properties
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.subscription import parse_tags

BROKER = "broker-a"


class ScriptedBroker:
    """Serves topics on a free port; `queue(n)` of topic `orders` unless said otherwise."""

    def __init__(self):
        self.stored = {}
        self.minimum = {}
        self.committed = {}
        #: Releases before 5.1 give the message closest to a time, not the first one after it.
        self.closest_search = False
        self.pull_messages_max = 32
        #: Messages that a pull at one of these offsets gets at most.
        self.short_at = {}
        #: How many messages a pull with a filter looks at.
        self.scan_max = 800
        #: One entry is taken per pull: "close", "silence", a code, or None to answer properly.
        self.faults = deque()
        #: Answer the pulls that arrive together in reverse order.
        self.reversed = False
        self.pulls = []
        self.requests = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.broker = self
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def queue(self, number, topic="orders"):
        queue = MessageQueue(topic, BROKER, number)
        self.stored.setdefault(queue, [])
        self.minimum.setdefault(queue, 0)
        return queue

    def store(self, queue, count, *, body=b"x", tags=None, at_ms=1_000, queue_offset=None):
        """Append messages; their offsets follow from their place."""
        kept = self.stored[queue]
        for _ in range(count):
            offset = len(kept)
            tag = tags(offset) if callable(tags) else tags
            properties = {"UNIQ_KEY": f"ID{offset}"} | ({"TAGS": tag} if tag else {})
            record = encode_record(
                topic=queue.topic,
                body=body + b"-%d" % offset,
                properties=encode_properties(properties),
                queue_id=queue.queue_id,
                queue_offset=offset,
                store_timestamp_ms=at_ms,
            )
            kept.append((record, tag, at_ms))

    def answer(self, request):
        """The answer to a request, or a fault as text."""
        self.requests.append(request.code)
        handler = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_MAX_OFFSET: lambda r: _offset(r, len(self.stored[_queue(r)])),
            RequestCode.GET_MIN_OFFSET: lambda r: _offset(r, self.minimum[_queue(r)]),
            RequestCode.QUERY_CONSUMER_OFFSET: self._committed,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.PULL_MESSAGE: self._pull,
        }[RequestCode(request.code)]
        return handler(request)

    def _route(self, request):
        topic = request.fields["topic"]
        queues = sum(queue.topic == topic for queue in self.stored)
        if not queues:
            return response_to(request, 17, f"No topic route info for {topic}")
        brokers = (BrokerSet(BROKER, "cluster", {0: self.address}),)
        route = TopicRoute(topic, brokers, (QueueData(BROKER, queues, queues, 6),))
        return response_to(request, body=encode_route(route))

    def _topics(self, request):
        names = {queue.topic for queue in self.stored}
        return response_to(request, body=encode_topic_list(names | {BROKER, "TBW102"}))

    def _system_topics(self, request):
        return response_to(request, body=encode_topic_list([BROKER, "cluster"]))

    def _committed(self, request):
        found = self.committed.get((request.fields["consumerGroup"], _queue(request)))
        return response_to(request, 22, "none") if found is None else _offset(request, found)

    def _search(self, request):
        wanted = int(request.fields["timestamp"])
        times = [at_ms for _, _, at_ms in self.stored[_queue(request)]]
        if not times:
            return _offset(request, 0)
        if self.closest_search:
            return _offset(request, min(range(len(times)), key=lambda n: abs(times[n] - wanted)))
        later = [number for number, at_ms in enumerate(times) if at_ms >= wanted]
        return _offset(request, later[0] if later else len(times))

    def _pull(self, request):
        fault = self.faults.popleft() if self.faults else None
        fields = request.fields
        offset = int(fields["queueOffset"])
        self.pulls.append((_queue(request), offset, int(fields["maxMsgNums"])))
        if isinstance(fault, str):
            return fault
        if isinstance(fault, int):
            return response_to(request, fault, "as scripted")
        return self._found(request, offset)

    def _found(self, request, offset):
        queue = _queue(request)
        kept, first = self.stored[queue], self.minimum[queue]
        if offset < first:
            return self._pulled(request, 21, first)
        if offset >= len(kept):
            return self._pulled(request, 19 if offset == len(kept) else 21, len(kept))
        codes = parse_tags("", request.fields.get("subscription"), 0).codes
        asked = int(request.fields["maxMsgNums"])
        limit = min(asked, self.short_at.get(offset, self.pull_messages_max))
        found, at = [], offset
        while at < len(kept) and len(found) < limit and at - offset < self.scan_max:
            record, tag, _ = kept[at]
            if not codes or (tag is not None and hash_code(tag) in codes):
                found.append(record)
            at += 1
        return self._pulled(request, 0 if found else 20, at, b"".join(found))

    def _pulled(self, request, code, following, body=b""):
        queue = _queue(request)
        fields = {
            "nextBeginOffset": str(following),
            "minOffset": str(self.minimum[queue]),
            "maxOffset": str(len(self.stored[queue])),
            "suggestWhichBrokerId": "0",
        }
        return response_to(request, code, None, fields, body)


def _queue(request):
    return MessageQueue(request.fields["topic"], BROKER, int(request.fields["queueId"]))


def _offset(request, offset):
    return response_to(request, fields={"offset": str(offset)})


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Handler(socketserver.BaseRequestHandler):
    def handle(self):
        # A client that has enough, or loses patience, closes its connection.
        with contextlib.suppress(ConnectionError):
            protocol = Connection()
            while (data := self.request.recv(1 << 16)) and self._answer(protocol.receive(data)):
                pass

    def _answer(self, requests):
        broker = self.server.broker
        answers = [broker.answer(request) for request in requests]
        for answer in reversed(answers) if broker.reversed else answers:
            if answer == "close":
                return False
            if answer != "silence":
                self.request.sendall(encode_command(answer))
        return True


__all__ = ["BROKER", "ScriptedBroker"]
