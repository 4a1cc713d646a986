"""A member of a group on a cluster in virtual time: the real host and machine, scripted brokers."""

from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.flows.offset import StartFrom
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import BrokerSet, QueueData, TopicRoute
from gimbalmq.runtime.consumer_host import ConsumerHost, PullSettings
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.offsets import BrokerOffsets
from gimbalmq.wire.bodies import (
    decode_lock,
    encode_consumer_list,
    encode_locked,
    encode_route,
)
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.command import response_to
from gimbalmq.wire.names import retry_topic
from gimbalmq.wire.record import encode_record
from gimbalmq.wire.subscription import parse_tags
from runtime.fake_driver import SILENCE, FakeDriver

ME = "me@gmq1-AVG"
GROUP = "billing"
RETRY = retry_topic(GROUP)


def broker_set(name, *, slave=False, master=True):
    addresses = {0: f"{name}:1"} if master else {}
    if slave:
        addresses[1] = f"{name}-slave:1"
    return BrokerSet(f"broker-{name}", "c", addresses)


def route(topic, *brokers, queues=1):
    return TopicRoute(topic, brokers, tuple(QueueData(b.name, queues, queues, 6) for b in brokers))


class Brokers:
    """A name server `n:1`, and brokers that know offsets and locks; pulls are held for ever."""

    def __init__(self, *brokers):
        brokers = brokers or (broker_set("a"), broker_set("b"))
        self.routes = {topic: route(topic, *brokers) for topic in ("orders", RETRY)}
        self.members = [ME]
        self.offsets = {}
        self.records = {}
        self.down = set()
        self.silent = set()
        #: Answers to requests of some code, instead of the usual ones.
        self.scripted = {}

    def __call__(self, address, command):
        if address in self.down:
            return None
        if address in self.silent or (address, command.code) in self.silent:
            return SILENCE
        if command.code in self.scripted:
            return self.scripted[command.code](address, command)
        handler = {
            R.GET_ROUTEINFO_BY_TOPIC: self._route,
            R.GET_CONSUMER_LIST_BY_GROUP: self._list,
            R.QUERY_CONSUMER_OFFSET: self._query,
            R.UPDATE_CONSUMER_OFFSET: self._update,
            R.GET_MAX_OFFSET: lambda one: response_to(one, fields={"offset": "0"}),
            R.GET_MIN_OFFSET: lambda one: response_to(one, fields={"offset": "0"}),
            R.PULL_MESSAGE: self._pull,
            R.LOCK_BATCH_MQ: self._lock,
            R.SEND_MESSAGE_V2: self._send,
        }.get(command.code, response_to)
        return handler(command)

    def _route(self, request):
        known = self.routes.get(request.fields["topic"])
        return response_to(request, 17) if known is None else answered_route(request, known)

    def _list(self, request):
        return response_to(request, body=encode_consumer_list(self.members))

    def _query(self, request):
        offset = self.offsets.get(place(request))
        if offset is None:
            return response_to(request, 22)
        return response_to(request, fields={"offset": str(offset)})

    def _update(self, request):
        self.offsets[place(request)] = int(request.fields["commitOffset"])
        return response_to(request)

    def _pull(self, request):
        bodies = self.records.pop(place(request), None)
        if bodies is None:
            return SILENCE
        first = int(request.fields["queueOffset"])
        fields = {
            "nextBeginOffset": str(first + len(bodies)),
            "minOffset": "0",
            "maxOffset": str(first + len(bodies)),
            "suggestWhichBrokerId": "0",
        }
        body = b"".join(
            encode_record(
                topic=request.fields["topic"],
                body=one,
                queue_id=int(request.fields["queueId"]),
                queue_offset=first + number,
                physical_offset=7000 + number,
                properties=b"UNIQ_KEY\x01ID%d\x02" % number,
            )
            for number, one in enumerate(bodies)
        )
        return response_to(request, fields=fields, body=body)

    def _lock(self, request):
        return response_to(request, body=encode_locked(decode_lock(request.body).queues))

    def _send(self, request):
        fields = {"msgId": "7F", "queueId": request.fields["e"], "queueOffset": "0"}
        return response_to(request, fields=fields)


def answered_route(request, known):
    return response_to(request, body=encode_route(known))


def place(request):
    """Topic, broker and number of the queue that a request is about."""
    fields = request.fields
    return MessageQueue(fields["topic"], fields["bname"], int(fields["queueId"]))


class Workers:
    """Keeps what it is given."""

    def __init__(self):
        self.got = []

    def submit(self, consume):
        self.got.append(consume)

    def cancel(self, queue, epoch):
        self.got = [one for one in self.got if (one.queue, one.epoch) != (queue, epoch)]
        return 0

    def accounted(self, done):
        pass

    def running(self):
        return []


class Stage:
    """One member, on a driver whose time the test moves."""

    def __init__(self, brokers=None, *, pulls=None, **settings):
        self.brokers = Brokers() if brokers is None else brokers
        self.driver = FakeDriver(self.brokers)
        self.instance = ClientInstance(ME, NameServers(["n:1"]), InstanceSettings())
        self.instance.attach(self.driver)
        now_ms = self.driver.now().wall_ms
        wanted = {topic: parse_tags(topic, "*", now_ms) for topic in ("orders", RETRY)}
        self.workers = Workers()
        self.reports = []
        self.ready = []
        options = ConsumerSettings(group=GROUP, client_id=ME, **settings)
        self.host = ConsumerHost(
            self.instance,
            ConsumerMachine(options, strategy_named("AVG"), wanted),
            wanted,
            offsets=BrokerOffsets(self.instance, GROUP, StartFrom()),
            start=StartFrom(),
            pulls=pulls or PullSettings(),
            announced=self.reports.append,
            stopped=lambda: None,
        )
        self.host.attach(self.workers)

    def start(self):
        outcome = []
        self.instance.join(self.host, outcome.append)
        assert outcome == [None]
        self.host.begin(lambda: self.ready.append(True))
        self.driver.advance(1.0)
        return self

    def owned(self):
        return self.host.machine.assignment()

    def of(self, code, address=None):
        return self.driver.of(code, address)

    def notified(self, code, address):
        return [one for where, one in self.driver.notified if (where, one.code) == (address, code)]
