"""Hostile inputs by the ten thousand: codecs refuse, machines answer, the broker goes on serving."""

from __future__ import annotations

import random
import socket

import pytest

from broker.desk import START_MS
from broker.hostile import BODY_READERS, Hostile
from gimbalmq.broker import BrokerSettings, EmbeddedCluster
from gimbalmq.broker.broker import BrokerMachine
from gimbalmq.broker.documents import JsonDocuments, KeptInMemory
from gimbalmq.broker.effects import Channel, Send
from gimbalmq.broker.nameserver import NameServerMachine
from gimbalmq.broker.peer import Limits
from gimbalmq.broker.store import FlushPolicy, StoreOptions, open_store
from gimbalmq.errors import GimbalError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, encode_command
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.headers import pull_request, send_request
from gimbalmq.wire.lenient_json import read_json
from gimbalmq.wire.properties import decode_properties
from gimbalmq.wire.record import decode_records

QUEUE = MessageQueue("orders", "broker-a", 0)
#: Small, so that the limits themselves are reached.
SETTINGS = BrokerSettings(topics_max=60, queues_max=64, groups_max=60, parked_max=200)
FRAME_BYTES_MAX = 1 << 20


def fuzz_codecs(seed, count):
    """Bytes that are almost right are read or refused, never anything else."""
    hostile = Hostile(seed)
    readers = list(BODY_READERS.values())
    for _ in range(count):
        kind = hostile.chance.randrange(5)
        try:
            match kind:
                case 0:
                    Connection(FRAME_BYTES_MAX).receive(hostile.frame())
                case 1:
                    for message in decode_records(hostile.damaged(hostile.record()), "b"):
                        assert (message.topic, message.body, message.properties) is not None
                case 2:
                    decode_batch(hostile.damaged(hostile.batch()))
                case 3:
                    hostile.chance.choice(readers)(hostile.document())
                case _:
                    read_json(hostile.document())
                    decode_properties(hostile.body())
        except GimbalError:
            continue


class Stand:
    """Machines that take hostile requests on a few channels, in time that goes on."""

    def __init__(self, folder, seed):
        self.hostile = Hostile(seed)
        self.store = open_store(
            folder,
            store_host=("127.0.0.1", 10911),
            options=StoreOptions(flush=FlushPolicy.NONE, segment_bytes=1 << 20),
        )
        documents = JsonDocuments(self.store.documents)
        chance = random.Random(seed)
        self.broker = BrokerMachine(SETTINGS, self.store, documents, chance, START_MS)
        self.names = NameServerMachine(KeptInMemory())
        self.now_ms = START_MS
        self.channels = [Channel(number, "127.0.0.1", 40_000 + number) for number in range(5)]
        self.numbers = 5
        self.answered = 0

    def step(self):
        chance = self.hostile.chance
        self.now_ms += chance.choice((0, 0, 1, 5, 900))
        machine = self.names if chance.random() < 0.2 else self.broker
        at = chance.randrange(len(self.channels))
        if chance.random() < 0.02:
            for one in (self.broker, self.names):
                one.channel_closed(self.channels[at], self.now_ms)
            self.numbers += 1
            self.channels[at] = Channel(self.numbers, "127.0.0.1", 40_000 + self.numbers)
        if chance.random() < 0.05 and self.now_ms >= machine.next_due_ms:
            machine.tick(self.now_ms)
        frame = self.hostile.frame()
        try:
            commands = Connection(FRAME_BYTES_MAX).receive(frame)
        except GimbalError:
            commands = []
        for command in (self.hostile.command(), *commands):
            for effect in machine.handle(command, self.channels[at], self.now_ms):
                if isinstance(effect, Send):
                    self.answered += 1
                    try:
                        encode_command(effect.command)
                    except GimbalError:
                        continue


def fuzz_machines(folder, seed, count):
    """No request makes a machine fail, and an honest client is served afterwards."""
    stand = Stand(folder, seed)
    try:
        for _ in range(count // 2):  # a command and a frame each
            stand.step()
        assert stand.answered > count // 4
        assert len(stand.broker.topics.topics) <= SETTINGS.topics_max + 20
        serve_honestly(stand)
    finally:
        stand.store.close()


def serve_honestly(stand):
    def ask(request):
        request.opaque = 77
        sent = stand.broker.handle(request, honest, stand.now_ms)
        return next(one for one in sent if isinstance(one, Send) and one.command.opaque == 77)

    honest = Channel(10**9, "127.0.0.1", 1)
    topic = next(
        name
        for name in (f"honest-{number}" for number in range(10))
        if name not in stand.broker.topics.topics
    )
    stand.broker.handle(
        Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}), honest, stand.now_ms
    )
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    fields |= {"readQueueNums": "1", "writeQueueNums": "1", "topicSysFlag": "0", "order": "false"}
    made = ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    assert made.command.code == 0, made.command.remark
    queue = MessageQueue(topic, "broker-a", 0)
    sent = ask(
        send_request(group="shop", queue=queue, body=b"x", properties="", born_timestamp_ms=1)
    )
    assert sent.command.code == 0, sent.command.remark
    offset = int(sent.command.fields["queueOffset"])
    given = ask(
        pull_request(group="honest", queue=queue, offset=offset, sys_flag=4, expression="*")
    )
    assert decode_records(b"".join(given.slices), "broker-a")[0].body == b"x"


def fuzz_port(seed, count):
    """Frames on the broker's and the name server's port: both serve somebody else afterwards."""
    hostile = Hostile(seed)
    limits = Limits(connections_max=100, frame_bytes_max=FRAME_BYTES_MAX)
    with EmbeddedCluster(settings=SETTINGS, limits=limits, processes=True) as cluster:
        cluster.create_topic("orders", 4)
        doors = [cluster.brokers[0].address, cluster.nameserver]
        done = 0
        while done < count:
            host, _, port = hostile.chance.choices(doors, (4, 1))[0].rpartition(":")
            burst = hostile.chance.randrange(1, 60)
            with socket.create_connection((host, int(port)), timeout=20.0) as client:
                try:
                    client.sendall(b"".join(hostile.frame() for _ in range(burst)))
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(1 << 16):
                        pass
                except OSError:  # it hung up on us, as it may
                    pass
            done += burst
        cluster.check()
        answers = (
            (doors[0], Command(RequestCode.GET_BROKER_RUNTIME_INFO)),
            (doors[1], Command(RequestCode.GET_BROKER_CLUSTER_INFO)),
        )
        for address, question in answers:
            with BlockingConnection(address) as connection:
                assert connection.call(question, 5.0).code == 0


SHARES = {"codecs": 0.5, "machines": 0.4, "port": 0.1}


def campaign(folder, seed, count):
    fuzz_codecs(seed, int(count * SHARES["codecs"]))
    fuzz_machines(folder, seed, int(count * SHARES["machines"]))
    fuzz_port(seed, int(count * SHARES["port"]))


def test_fifty_thousand_hostile_inputs_do_no_harm(tmp_path):
    campaign(tmp_path, 1, 50_000)


@pytest.mark.soak
def test_a_million_hostile_inputs_do_no_harm(tmp_path, record_property):
    rounds, each = 20, 50_000
    for seed in range(100, 100 + rounds):
        campaign(tmp_path / str(seed), seed, each)
    record_property("inputs", rounds * each)
