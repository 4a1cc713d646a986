from gimbalmq.spark import connections
from gimbalmq.spark.options import parse_read_options
from gimbalmq.transport.reach import PLAIN, reach_of
from gimbalmq.wire.command import Command
from transport.certificates import client_context, server_context
from transport.server import LoopbackServer


def test_a_connection_is_kept_for_the_next_task_with_the_same_keys_only():
    signed = reach_of(access_key="shop", secret_key="s")
    with LoopbackServer() as server:
        first = connections.take(server.address, signed)
        first.call(Command(1), 5.0)
        connections.give_back(first)
        other = connections.take(server.address)
        again = connections.take(server.address, signed)
        assert again is first
        assert other is not first
        assert (other.reach, again.reach) == (PLAIN, signed)
        other.close()
        again.close()
        assert server.requests[0].fields["AccessKey"] == "shop"


def test_what_is_kept_is_closed_at_the_end_except_for_what_a_parent_keeps(monkeypatch):
    with LoopbackServer() as server:
        kept = connections.take(server.address)
        connections.give_back(kept)
        with monkeypatch.context() as forked:
            forked.setattr(connections.os, "getpid", lambda: -1)
            connections.close_idle()
        assert not kept.closed
        connections.close_idle()
        assert kept.closed
        again = connections.take(server.address)
        assert again is not kept
        again.close()


def test_tasks_speak_tls():
    with LoopbackServer(tls=server_context()) as server:
        connection = connections.take(server.address, reach_of(tls=client_context()))
        assert connection.call(Command(1), 5.0).code == 0
        connection.close()


def test_a_read_takes_keys_and_certificates():
    options = parse_read_options(
        {"nameserver": "a:1", "topic": "t", "accessKey": "k", "secretKey": "hidden", "tls": "true"}
    )
    assert options.reach.credentials.access_key == "k"
    assert options.reach.tls is not None
    assert "hidden" not in repr(options)
