"""What a peer asks its Java process for, without one."""

from __future__ import annotations

import msgspec
import pytest

from gimbalmq.errors import StateError
from gimbalmq.testing import JavaPeer


class Unstarted(JavaPeer):
    """Answers instead of a process, and keeps what it was asked."""

    def request(self, op, actor, *, timeout_s, **fields):
        self.asked = fields
        return msgspec.Raw(b'{"client_id": "one"}')


def test_options_of_a_peer_are_those_of_every_client_that_has_none_of_its_own():
    peer = Unstarted("127.0.0.1:1", client_options={"heartbeat_ms": 1000, "instance": "till"})
    assert peer.producer("shop").client_id == "one"
    assert (peer.asked["heartbeat_ms"], peer.asked["instance"]) == (1000, "till")
    peer.push_consumer("billing", "orders", heartbeat_ms=7)
    assert (peer.asked["heartbeat_ms"], peer.asked["instance"]) == (7, "till")
    plain = Unstarted("127.0.0.1:1")
    plain.admin()
    assert "heartbeat_ms" not in plain.asked


def test_a_peer_that_was_not_started_says_so():
    peer = JavaPeer("127.0.0.1:1")
    with pytest.raises(StateError, match="call start"):
        peer.producer("g")
    peer.stop()
