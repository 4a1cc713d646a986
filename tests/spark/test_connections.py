from __future__ import annotations

import os

import pytest

from gimbalmq.errors import TransportError
from gimbalmq.spark import connections


def test_a_connection_comes_back_to_whoever_asks_next(scripted):
    first = connections.take(scripted.address)
    connections.give_back(first)
    assert connections.take(scripted.address) is first
    first.close()


def test_two_users_at_once_get_two_connections(scripted):
    first, second = connections.take(scripted.address), connections.take(scripted.address)
    assert first is not second
    first.close()
    second.close()


def test_a_closed_connection_is_not_kept(scripted):
    first = connections.take(scripted.address)
    first.close()
    connections.give_back(first)
    second = connections.take(scripted.address)
    assert not second.closed
    second.close()


def test_a_forked_process_does_not_use_the_connections_of_its_parent(scripted, monkeypatch):
    parents = connections.take(scripted.address)
    connections.give_back(parents)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        own = connections.take(scripted.address)
        assert own is not parents
        own.close()
    connections.take(scripted.address).close()


def test_an_address_where_nobody_listens_is_an_error():
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1"):
        connections.take("127.0.0.1:1")
