"""The front: real sockets, hostile bytes, limits."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gimbalmq.broker import EmbeddedCluster, ServerTls
from gimbalmq.broker.effects import Send
from gimbalmq.broker.peer import Limits
from gimbalmq.broker.server import Front
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, encode_command, response_to
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.frame import FRAME_BYTES_MAX
from gimbalmq.wire.headers import pull_request, send_request
from gimbalmq.wire.record import decode_records


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(limits=Limits(connections_max=50)) as running:
        running.create_topic("orders", 4)
        yield running


def address_of(cluster, *, nameserver=False):
    address = cluster.nameserver if nameserver else cluster.brokers[0].address
    host, _, port = address.rpartition(":")
    return host, int(port)


def serves(cluster):
    """Whether the broker still answers somebody else."""
    with BlockingConnection(cluster.brokers[0].address) as connection:
        answer = connection.call(
            Command(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}), 5.0
        )
    return answer.code == 0


def converse(cluster, data, wait_s=30.0, then_s=0.2, **given):
    """Send bytes; what came back until the broker hung up or was silent, and whether it hung up.

    It has `wait_s` for its first answer, or to hang up, and `then_s` for what follows an answer.
    """
    received = b""
    with socket.create_connection(address_of(cluster, **given), timeout=20.0) as client:
        client.sendall(data)
        client.settimeout(wait_s)
        try:
            while chunk := client.recv(65536):
                received += chunk
                client.settimeout(then_s)
        except TimeoutError:
            return received, False
        except ConnectionError:
            pass
    return received, True


@pytest.mark.rule("W1.1c", "W1.7c", "W8b")
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff" * 64,
        struct.pack(">ii", 1 << 30, 0),
        struct.pack(">ii", 8, 99) + b"x" * 4,
        struct.pack(">ii", 20, 2 << 24) + b"x" * 16,
        struct.pack(">ii", 12, 8) + b"not json",
        struct.pack(">ii", 12, 1 << 24 | 8) + b"\x00" * 8,
    ],
)
def test_bytes_that_are_no_protocol_cost_only_their_own_connection(cluster, data):
    for nameserver in (False, True):
        _, closed = converse(cluster, data, nameserver=nameserver)
        assert closed
    assert serves(cluster)


@pytest.mark.rule("W1.1d", "W1.3", "W8b")
def test_binary_headers_are_understood(cluster):
    request = Command(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}, opaque=7)
    data, _ = converse(cluster, encode_command(request, binary=True))
    (answer,) = Connection().receive(data)
    assert (answer.code, answer.opaque) == (0, 7)


@pytest.mark.rule("W8b")
def test_a_pop_whose_code_was_cut_off_by_the_binary_form_is_answered(cluster):
    cut_off = RequestCode.POP_MESSAGE & 0xFFFF
    data, closed = converse(cluster, encode_command(Command(cut_off, opaque=8), binary=True))
    (answer,) = Connection().receive(data)
    assert (answer.code, answer.opaque, closed) == (3, 8, False)


@pytest.mark.rule("W2.2")
def test_frames_that_came_before_bad_bytes_are_still_answered(cluster):
    good = encode_command(Command(31_337, opaque=5))
    data, closed = converse(cluster, good + b"\xff" * 16, then_s=30.0)
    (answer,) = Connection().receive(data)
    assert (answer.code, answer.opaque) == (3, 5)
    assert closed


CODES = st.one_of(st.sampled_from(list(RequestCode)), st.integers(-(1 << 31), (1 << 31) - 1))
NAMES = st.sampled_from(
    [
        "topic",
        "group",
        "consumerGroup",
        "producerGroup",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
        "h",
        "i",
        "j",
        "k",
        "l",
        "m",
        "n",
        "offset",
        "commitOffset",
        "timestamp",
        "key",
        "maxNum",
        "beginTimestamp",
        "endTimestamp",
        "delayLevel",
        "extraInfo",
        "invisibleTime",
        "pollTime",
        "bornTime",
        "msgId",
        "perm",
        "readQueueNums",
        "writeQueueNums",
    ]
)
VALUES = st.one_of(
    st.sampled_from(["orders", "billing", "0", "1", "-1", "true", "9" * 30, "%RETRY%billing", ""]),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=60),
    st.sampled_from([b"{}", b"[]", b"{" * 100, b'{"consumerDataSet":[{}]}', b'{"mqSet":[1]}']),
)


@pytest.mark.rule("W2.0c", "W8b")
@settings(max_examples=150)
@given(st.lists(st.tuples(CODES, st.dictionaries(NAMES, VALUES, max_size=8), BODIES), max_size=8))
def test_no_request_takes_the_broker_down_or_stays_without_an_answer(cluster, requests):
    held = {RequestCode.POP_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
    silent = held | {RequestCode.END_TRANSACTION, RequestCode.NOTIFICATION}
    with BlockingConnection(cluster.brokers[0].address) as connection:
        for code, fields, body in requests:
            connection.send(Command(code, dict(fields), body))
        expected = sum(code not in silent for code, _, _ in requests)
        for _ in range(expected):
            connection.receive(5.0)
    assert serves(cluster)


def test_random_bytes_in_quantity_do_no_harm(cluster):
    chance = random.Random(7)
    frame = encode_command(Command(34, {"a": "b"}, b"body", 1))
    for _ in range(30):
        broken = bytearray(frame * 3)
        for _ in range(chance.randrange(1, 6)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        converse(cluster, bytes(broken), wait_s=0.01)
    assert serves(cluster)


def test_a_frame_may_come_byte_by_byte(cluster):
    frame = encode_command(Command(31_337, opaque=9))
    with socket.create_connection(address_of(cluster), timeout=5.0) as client:
        for number in range(len(frame)):
            client.sendall(frame[number : number + 1])
        (answer,) = Connection().receive(client.recv(65536))
    assert answer.opaque == 9


@pytest.mark.rule("W6.3", "W5.3")
def test_a_held_pull_is_answered_over_the_wire(cluster):
    address = cluster.brokers[0].address
    queue = MessageQueue("orders", "broker-a", 3)
    with BlockingConnection(address) as reader, BlockingConnection(address) as writer:
        reader.send(
            pull_request(
                group="g",
                queue=queue,
                offset=0,
                sys_flag=6,
                expression="*",
                suspend_timeout_ms=9000,
            )
        )
        assert serves(cluster)
        writer.call(
            send_request(group="p", queue=queue, body=b"x", properties="", born_timestamp_ms=1), 5.0
        )
        answer = reader.receive(5.0)
    assert decode_records(answer.body, "b")[0].body == b"x"


@pytest.mark.rule("W8b")
def test_more_connections_than_allowed_wait_until_others_leave(cluster):
    clients = [socket.create_connection(address_of(cluster), timeout=2.0) for _ in range(60)]
    request = encode_command(Command(31_337, opaque=1))
    try:
        last = clients[-1]
        last.sendall(request)
        last.settimeout(0.3)
        with pytest.raises(TimeoutError):
            last.recv(1)
        for client in clients[:-1]:
            client.close()
        last.settimeout(10.0)
        assert last.recv(1)
    finally:
        for client in clients:
            client.close()


@pytest.mark.rule("W1.7c")
@pytest.mark.parametrize("nameserver", [False, True])
@pytest.mark.parametrize("encrypted", [False, True])
def test_idle_connections_are_closed(tls_files, nameserver, encrypted):
    tls = ServerTls(*map(str, tls_files)) if encrypted else None
    with (
        EmbeddedCluster(limits=Limits(idle_s=0.5), tls=tls) as cluster,
        socket.create_connection(
            address_of(cluster, nameserver=nameserver), timeout=10.0
        ) as client,
    ):
        started = time.monotonic()
        assert client.recv(1) == b""
        assert time.monotonic() - started >= 0.4


@pytest.mark.rule("W1.7")
def test_tls_and_plain_text_share_a_port(tls_files):
    certificate, key = tls_files
    trusting = ssl.create_default_context(cafile=certificate)
    trusting.check_hostname = False
    with EmbeddedCluster(tls=ServerTls(str(certificate), str(key))) as cluster:
        request = encode_command(Command(31_337, opaque=4))
        with (
            socket.create_connection(address_of(cluster), timeout=5.0) as plain,
            trusting.wrap_socket(plain) as client,
        ):
            client.sendall(request)
            (answer,) = Connection().receive(client.recv(65536))
        assert answer.opaque == 4
        data, _ = converse(cluster, request)
        assert Connection().receive(data)[0].opaque == 4


def test_a_header_that_is_too_large_costs_its_connection_and_nothing_else():
    with EmbeddedCluster(limits=Limits(header_bytes_max=2_000)) as cluster:
        cluster.create_topic("orders", 4)
        small = encode_command(Command(31_337, {"x": "y" * 1_000}, opaque=4))
        data, closed = converse(cluster, small)
        assert Connection().receive(data)[0].opaque == 4
        assert not closed
        large = encode_command(Command(31_337, {"x": "y" * 3_000}, opaque=5))
        assert converse(cluster, large) == (b"", True)
        assert serves(cluster)


class Telltale:
    """A machine that answers everything with the same, and does nothing else."""

    next_due_ms = 1 << 62

    def __init__(self, fields, body, slices):
        self.told = fields, body, slices

    def handle(self, request, channel, now_ms):
        fields, body, slices = self.told
        return [Send(channel, response_to(request, fields=dict(fields), body=body), slices)]

    def channel_closed(self, channel, now_ms):
        return []

    def tick(self, now_ms):
        return []


async def told_by(machine):
    """The answer that a machine's front sends."""
    front = Front(machine, name="it")
    listener = socket.create_server(("127.0.0.1", 0))
    front.start(listener)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        writer.write(encode_command(Command(31_337, opaque=6)))
        async with asyncio.timeout(20.0):
            (answer,) = Connection().receive(await reader.read(1 << 16))
    finally:
        writer.close()
        await writer.wait_closed()
        front.stop()
    return answer


LARGE = bytes(FRAME_BYTES_MAX)


@pytest.mark.rule("W2.0c", "W8b")
@pytest.mark.parametrize(
    ("fields", "body", "slices", "words"),
    [
        ({}, LARGE, (), "above the protocol's limit"),
        ({}, b"", (LARGE[:1000], LARGE[1000:]), "above the protocol's limit"),
        ({"topic": "\udc80"}, b"", (), "lone surrogate"),
    ],
)
def test_an_answer_that_cannot_be_sent_is_an_error_and_not_silence(fields, body, slices, words):
    answer = asyncio.run(told_by(Telltale(fields, body, slices)))
    assert (answer.code, answer.opaque, answer.is_response) == (1, 6, True)
    assert words in answer.remark


def test_a_connection_that_is_accepted_while_the_server_stops_is_closed():
    class Idle:
        next_due_ms = 1 << 60

        def tick(self, now_ms):
            return []

    async def stop_at_once(client):
        front = Front(Idle(), name="idle")
        front.start(listener)
        client.connect(listener.getsockname())
        front._accept()
        assert front._tasks
        front.stop()
        await asyncio.sleep(0.01)

    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.settimeout(10.0)
        asyncio.run(stop_at_once(client))
        assert client.recv(1) == b""
