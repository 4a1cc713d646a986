"""Load for a broker over plain sockets: requests are encoded before the clock starts.

The same for every broker. Each connection keeps a fixed number of requests in flight; answers are
only counted, so that the load costs little beside what it measures.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.command import decode_command, encode_command
from gimbalmq.wire.headers import pull_request, send_request

__all__ = ["pull", "send", "send_frames"]

_LIMIT_S: Final = 300.0
_READ_BYTES: Final = 1 << 20
#: Sends without an answer yet, over all connections.
_IN_FLIGHT: Final = 256
_PULL_MESSAGES: Final = 32
_length = struct.Struct(">I").unpack_from


class _Wire:
    """A connection and what has come on it so far."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()

    def frames(self) -> list[bytes]:
        """Read once; the frames that are whole now, without their length words."""
        chunk = self.socket.recv(_READ_BYTES)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        self._data += chunk
        found, at = [], 0
        while len(self._data) - at >= 4:
            (size,) = _length(self._data, at)
            if len(self._data) - at - 4 < size:
                break
            found.append(bytes(self._data[at + 4 : at + 4 + size]))
            at += 4 + size
        del self._data[:at]
        return found


def send_frames(topic: str, broker: str, queues: int, size: int, count: int) -> list[bytes]:
    """Different send requests, round robin over the queues."""
    frames = []
    for number in range(count):
        request = send_request(
            group="bench",
            queue=MessageQueue(topic, broker, number % queues),
            body=b"x" * size,
            properties=f"UNIQ_KEY\x01BENCH{number:027}\x02WAIT\x01true\x02",
            born_timestamp_ms=time.time_ns() // 1_000_000,
        )
        request.opaque = number + 1
        frames.append(encode_command(request))
    return frames


def send(address: str, frames: Sequence[bytes], count: int, connections: int) -> float:
    """Send `count` of the requests, over and over, and wait for all answers; seconds."""
    wires = [_Wire(address) for _ in range(connections)]
    share, window = count // connections, max(1, _IN_FLIGHT // connections)
    started = time.perf_counter()
    with selectors.DefaultSelector() as waiting:
        left = {}
        for wire in wires:
            waiting.register(wire.socket, selectors.EVENT_READ, wire)
            first = min(window, share)
            wire.socket.sendall(b"".join(frames[n % len(frames)] for n in range(first)))
            left[wire] = [share - first, share]
        while left:
            for key, _ in _ready(waiting):
                wire = key.data
                answers = wire.frames()
                _check(answers)
                to_send, to_come = left[wire]
                more = min(len(answers), to_send)
                if more:
                    base = share - to_send
                    wire.socket.sendall(
                        b"".join(frames[n % len(frames)] for n in range(base, base + more))
                    )
                left[wire] = [to_send - more, to_come - len(answers)]
                if to_come == len(answers):
                    waiting.unregister(wire.socket)
                    del left[wire]
    took = time.perf_counter() - started
    for wire in wires:
        wire.socket.close()
    return took


def pull(address: str, topic: str, broker: str, queues: int, each: int, connections: int) -> float:
    """Pull the first `each` messages of every queue, the queues shared out; seconds."""
    wires = [_Wire(address) for _ in range(connections)]
    todo = {
        wire: [[queue_id, 0] for queue_id in range(number, queues, connections)]
        for number, wire in enumerate(wires)
    }

    def ask(wire: _Wire) -> None:
        queue_id, offset = todo[wire][0]
        request = pull_request(
            group="bench-reader",
            queue=MessageQueue(topic, broker, queue_id),
            offset=offset,
            sys_flag=4,
            expression="*",
            max_messages=_PULL_MESSAGES,
        )
        request.opaque = 1
        wire.socket.sendall(encode_command(request))

    started = time.perf_counter()
    with selectors.DefaultSelector() as waiting:
        for wire in wires:
            waiting.register(wire.socket, selectors.EVENT_READ, wire)
            ask(wire)
        while any(todo.values()):
            for key, _ in _ready(waiting):
                wire = key.data
                for frame in wire.frames():
                    answer = decode_command(frame)
                    if answer.code:
                        raise ConnectionError(f"a pull was refused: {answer.code} {answer.remark}")
                    todo[wire][0][1] = int(answer.fields["nextBeginOffset"])
                    if todo[wire][0][1] >= each:
                        del todo[wire][0]
                    if todo[wire]:
                        ask(wire)
    took = time.perf_counter() - started
    for wire in wires:
        wire.socket.close()
    return took


def _ready(
    waiting: selectors.DefaultSelector,
) -> list[tuple[selectors.SelectorKey, int]]:
    found = waiting.select(_LIMIT_S)
    if not found:
        raise TimeoutError(f"the broker said nothing for {_LIMIT_S:g} s")
    return found


def _check(answers: list[bytes]) -> None:
    """One of them stands for all: a broker that refuses does not refuse only one."""
    if answers:
        answer = decode_command(answers[-1])
        if answer.code != ResponseCode.SUCCESS:
            raise ConnectionError(f"a send was refused: {answer.code} {answer.remark}")
