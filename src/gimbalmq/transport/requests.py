"""The requests in flight on one connection, without the connection.

Keeps what is to be written, finds the request that an answer belongs to, and gives up those that
are over their time. Whoever has the socket adds reading and writing, and says what time it is.

Requests are numbered throughout the process, so that one can be written down before it is known
which connection it leaves by.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from gimbalmq.errors import CallTimeoutError, GimbalError, ProtocolError, TransportError
from gimbalmq.transport.reach import PLAIN, Reach
from gimbalmq.transport.trouble import closed
from gimbalmq.wire.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    Command,
    decode_command,
    encode_command,
)
from gimbalmq.wire.connection import Connection
from gimbalmq.wire.found import read_found
from gimbalmq.wire.stored import StoredAnswer, read_all_stored, read_stored

__all__ = ["Answered", "RequestTable", "StoredTogether", "next_opaque", "next_opaques"]

_numbers: Final = itertools.count(1)
#: 31 bits, as a signed word carries them.
_NUMBER_MASK: Final = 0x7FFFFFFF


def next_opaque() -> int:
    """A number for a request."""
    return next(_numbers) & _NUMBER_MASK


def next_opaques(count: int) -> list[int]:
    """Numbers for requests, as `next_opaque` gives them."""
    return [number & _NUMBER_MASK for number in itertools.islice(_numbers, count)]


#: Receives the answer of a request, or the reason why there is none.
Answered = Callable[[Command | GimbalError], None]

#: Receives the answers of sends that went well, those of one reading together, and for each the
#: `Answered` that any other answer would have gone to.
StoredTogether = Callable[[list[Answered], list[StoredAnswer]], None]


#: When a request was sent, when its answer is late, and where the answer goes if it is a send and
#: was stored.
Terms = tuple[float, float, StoredTogether | None]


class RequestTable:
    """What is unsent, and what waits for its answer, on the connection to one address.

    Requests are signed here, as `reach` says.
    """

    def __init__(self, address: str, now: float, reach: Reach = PLAIN) -> None:
        self.address = address
        self._reach = reach
        self._signs = reach.credentials is not None
        self._talked = False
        self.opened_at = now
        #: When the peer last sent anything; tells a dead connection from a slow answer.
        self.heard_at = now
        self._protocol = Connection()
        self._pending: dict[int, tuple[Answered, Terms]] = {}
        #: Whether some of these, now or once, are sends whose answers are told together.
        self._together = False
        self._unsent: deque[bytes | memoryview] = deque()

    def request(self, command: Command, now: float, timeout_s: float, done: Answered) -> int:
        """Queue a request; `done` is called once, by `take_in`, `give_up_late` or `fail_all`.

        Returns its number, for `forget`.
        """
        command.opaque = opaque = next_opaque()
        if self._signs:
            command = self._reach.signed(command)
        frame = encode_command(command)
        self._pending[opaque] = (done, (now, now + timeout_s, None))
        self._queue(frame)
        return opaque

    def notify(self, command: Command) -> None:
        """Queue a one-way request."""
        command.opaque = next_opaque()
        command.flag |= FLAG_ONEWAY
        self._queue(encode_command(self._reach.signed(command)))

    def answer(self, response: Command) -> None:
        """Queue an answer to a request of the server."""
        self._queue(encode_command(response))

    def _queue(self, frame: bytes) -> None:
        self._unsent.append(frame)

    def forget(self, opaque: int) -> None:
        """Nobody waits for an answer any more: it is dropped when it comes."""
        self._pending.pop(opaque, None)

    @property
    def idle(self) -> bool:
        """Whether no request waits for an answer."""
        return not self._pending

    def take_in(self, data: bytes, now: float) -> list[Command]:
        """Take what was received; calls `done` of every answer, returns the server's requests."""
        self.heard_at = now
        self._talked = True
        requests: list[Command] = []
        frames = self._protocol.frames(data)
        if self._together:
            self._take_frames(frames, requests)
        else:
            for frame in frames:
                self._take(read_found(frame) or decode_command(frame), requests)
        return requests

    def _take(self, command: Command, requests: list[Command]) -> None:
        if not command.flag & FLAG_RESPONSE:
            requests.append(command)
            return
        if command.code:
            self._reach.explain(command)
        # Looked up each time: an answer may make the connection fail, which ends them all.
        waiting = self._pending.pop(command.opaque, None)
        if waiting is not None:  # else it was given up: the answer comes too late
            waiting[0](command)

    def _take_frames(self, frames: list[bytes | memoryview], requests: list[Command]) -> None:
        """As `_take`, but sends that went well are told together, after the reading."""
        stored: dict[StoredTogether, tuple[list[Answered], list[StoredAnswer]]] = {}
        last, done, answers = None, list[Answered](), list[StoredAnswer]()
        try:
            for frame, answer in zip(
                frames, read_all_stored(frames) or map(read_stored, frames), strict=True
            ):
                # Looked up each time, as in `_take`.
                waiting = None if answer is None else self._pending.get(answer.opaque)
                if answer is None or waiting is None or (together := waiting[1][2]) is None:
                    self._take(read_found(frame) or decode_command(frame), requests)
                    continue
                del self._pending[answer.opaque]
                if together is not last:
                    last, (done, answers) = together, stored.setdefault(together, ([], []))
                done.append(waiting[0])
                answers.append(answer)
        finally:
            for together, (done, answers) in stored.items():
                together(done, answers)

    def waits_too_long(self, now: float) -> bool:
        """While there is no connection: whether a request has spent half of its time on it.

        The other half is for another broker; a call that blocks gives a connection no more, too.
        """
        # Listed first: another thread may add to them.
        return any(
            now - sent_at > deadline - now
            for _, (sent_at, deadline, _) in list(self._pending.values())
        )

    def give_up_late(self, now: float) -> None:
        """Give up requests that are over their time.

        Raises:
            CallTimeoutError: the peer has been silent since before such a request, so the
                connection is dead.
            ProtocolError: it speaks another protocol.
        """
        # Listed first: another thread may add to them.
        late = [one for one in list(self._pending.items()) if one[1][1][1] < now]
        for opaque, (done, (sent_at, deadline, _)) in late:
            # One that ended may have made others end.
            if self._pending.pop(opaque, None) is None:
                continue
            error = CallTimeoutError(
                f"{self.address} did not answer within {deadline - sent_at:.1f} s",
                address=self.address,
            )
            done(error)
            if self._protocol.speaks_http2:
                raise self.ended()
            if self.heard_at < sent_at:
                raise error

    def ended(self) -> TransportError | ProtocolError:
        """The error that says that the peer closed the connection, and what that may mean."""
        return closed(
            self.address,
            http2=self._protocol.speaks_http2,
            tls=self._reach.tls is not None,
            talked=self._talked,
        )

    def fail_all(self, error: GimbalError) -> None:
        """Drop what is unsent, and tell every waiting request why there will be no answer."""
        self._unsent.clear()
        pending, self._pending = self._pending, {}
        for done, _terms in pending.values():
            done(error)
