from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from gimbalmq.broker.probe import ask, create_topic, lists_brokers, write_queues
from gimbalmq.errors import BrokerError, TransportError
from gimbalmq.wire.command import Command, encode_command, response_to
from gimbalmq.wire.connection import Connection


@pytest.fixture
def server():
    """Answers one connection as the test says; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(answer: Callable[[Command], bytes]) -> str:
        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                incoming = Connection()
                while data := connection.recv(65536):
                    for command in incoming.receive(data):
                        connection.sendall(answer(command))
                        return

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    listener.close()
    for thread in threads:
        thread.join(10)


def test_the_answer_is_returned_whatever_its_code(server):
    address = server(lambda request: encode_command(response_to(request, 17, "no route")))
    answer = ask(address, 105, {"topic": "t"})
    assert (answer.code, answer.remark) == (17, "no route")


def test_a_connection_closed_without_an_answer_is_an_error(server):
    with pytest.raises(TransportError, match="closed the connection"):
        ask(server(lambda _: b""), 105)


def test_nobody_listening_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as closing:
        address = f"127.0.0.1:{closing.getsockname()[1]}"
    with pytest.raises(TransportError, match=f"{address} did not answer"):
        ask(address, 105)


@pytest.mark.parametrize(("port", "expected"), [(10911, True), (1091, False)])
def test_a_broker_is_listed_only_with_its_whole_address(server, port, expected):
    body = b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"127.0.0.1:10911"}}}}'
    address = server(lambda request: encode_command(response_to(request, body=body)))
    assert lists_brokers(address, [f"127.0.0.1:{port}"]) is expected


def test_the_queues_of_a_topic_are_counted_by_broker(server):
    body = b'{"brokerDatas":[],"queueDatas":[{"brokerName":"a","writeQueueNums":4,"perm":6}]}'
    address = server(lambda request: encode_command(response_to(request, body=body)))
    assert write_queues(address, "t") == {"a": 4}


def test_an_unknown_topic_has_no_queues(server):
    assert write_queues(server(lambda r: encode_command(response_to(r, 17, "no"))), "t") == {}


def test_a_refused_topic_is_an_error_with_the_code(server):
    address = server(lambda request: encode_command(response_to(request, 29, "bad name")))
    with pytest.raises(BrokerError, match="refused to make topic 't': code 29, bad name") as caught:
        create_topic(address, "t", queues=1, permission=6, order=False, attributes={})
    assert caught.value.code == 29


def test_attributes_are_written_as_rocketmq_reads_them(server):
    seen: list[Command] = []

    def answer(request: Command) -> bytes:
        seen.append(request)
        return encode_command(response_to(request))

    create_topic(
        server(answer),
        "t",
        queues=2,
        permission=6,
        order=True,
        attributes={"message.type": "FIFO", "x": "y"},
    )
    fields = seen[0].fields
    assert fields["attributes"] == "+message.type=FIFO,+x=y"
    assert (fields["order"], fields["writeQueueNums"]) == ("true", "2")
