"""Name server and broker in one loopback server: just enough for clients to start and stop."""

import threading
import time

from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.wire.bodies import decode_heartbeat, encode_consumer_list, encode_route
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.command import response_to
from gimbalmq.wire.record import encode_record
from transport.server import LoopbackServer


class SmallCluster(LoopbackServer):
    """One broker `broker-a`; each topic has `queues` queues, filled with `bodies` in queue 0."""

    def __init__(self, *topics, queues=2, bodies=(), template=False):
        self._topics = set(topics)
        self._queues = queues
        self._bodies = {topic: list(bodies) for topic in topics}
        self._members = []
        self.committed = {}
        self.sent = []
        self._state = threading.Lock()
        if template:
            self._topics.add("TBW102")
        super().__init__(self._respond)

    def _respond(self, request):
        handlers = {
            R.GET_ROUTEINFO_BY_TOPIC: self._route,
            R.HEART_BEAT: self._beat,
            R.GET_CONSUMER_LIST_BY_GROUP: self._list,
            R.QUERY_CONSUMER_OFFSET: self._query,
            R.UPDATE_CONSUMER_OFFSET: self._update,
            R.PULL_MESSAGE: self._pull,
            R.SEND_MESSAGE_V2: self._send,
        }
        with self._state:
            return handlers.get(request.code, response_to)(request)

    def _route(self, request):
        topic = request.fields["topic"]
        if topic not in self._topics and not topic.startswith("%RETRY%"):
            return response_to(request, 17, "no route")
        queues = 1 if topic.startswith("%RETRY%") else self._queues
        route = TopicRoute(
            topic,
            (BrokerSet("broker-a", "c", {0: self.address}),),
            (QueueData("broker-a", queues, queues, 6),),
        )
        return response_to(request, body=encode_route(route))

    def _beat(self, request):
        beat = decode_heartbeat(request.body)
        if beat.consumers and beat.client_id not in self._members:
            self._members.append(beat.client_id)
        return response_to(request)

    def _list(self, request):
        return response_to(request, body=encode_consumer_list(self._members))

    @staticmethod
    def _place(request):
        return request.fields["topic"], int(request.fields["queueId"])

    def _query(self, request):
        offset = self.committed.get(self._place(request))
        if offset is None:
            return response_to(request, 22)
        return response_to(request, fields={"offset": str(offset)})

    def _update(self, request):
        self.committed[self._place(request)] = int(request.fields["commitOffset"])
        return response_to(request)

    def _pull(self, request):
        (topic, queue), offset = self._place(request), int(request.fields["queueOffset"])
        bodies = self._bodies.get(topic, []) if queue == 0 else []
        if offset >= len(bodies):
            return None  # held, as a long poll is
        records = b"".join(
            encode_record(topic=topic, body=body, queue_id=queue, queue_offset=number)
            for number, body in enumerate(bodies[offset:], offset)
        )
        fields = {
            "nextBeginOffset": str(len(bodies)),
            "minOffset": "0",
            "maxOffset": str(len(bodies)),
            "suggestWhichBrokerId": "0",
        }
        return response_to(request, fields=fields, body=records)

    def _send(self, request):
        self.sent.append(request)
        fields = {"msgId": "7F", "queueId": request.fields["e"], "queueOffset": "0"}
        return response_to(request, fields=fields)


class HoldingCluster(SmallCluster):
    """Keeps sends unanswered until told to answer them."""

    def __init__(self, *topics, **options):
        self.held = []
        self.holding = True
        super().__init__(*topics, **options)

    def _send(self, request):
        if self.holding:
            self.held.append(request)
            return None
        return super()._send(request)

    def answer_all(self):
        with self._state:
            held, self.held = self.held, []
        for request in held:
            fields = {"msgId": "7F", "queueId": request.fields["e"], "queueOffset": "0"}
            self.push(response_to(request, fields=fields))

    def wait_held(self, count):
        deadline = time.monotonic() + 60.0
        while len(self.held) < count:
            assert time.monotonic() < deadline, f"{len(self.held)} of {count} arrived"
            time.sleep(0.001)


class Elsewhere(SmallCluster):
    """A name server whose broker advertises another address than the one it has."""

    def __init__(self, advertised, topic="orders"):
        self.advertised = advertised
        super().__init__(topic, queues=1, bodies=[b"one", b"two"])

    def _route(self, request):
        answer = super()._route(request)
        answer.body = answer.body.replace(self.address.encode(), self.advertised.encode())
        return answer
