from __future__ import annotations

import socket

import pytest

from gimbalmq.errors import EngineError
from gimbalmq.testing import ports
from gimbalmq.testing.ports import free_port, require_free


def test_a_chosen_port_and_its_neighbours_are_not_chosen_again():
    taken: set[int] = set()
    first = free_port(also=(-2, 1), avoid=taken)
    assert taken == {first - 2, first, first + 1}
    second = free_port(avoid=taken)
    assert second not in {first - 2, first, first + 1}


def test_a_port_in_use_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EngineError, match=rf"port {port} for the name server is taken"):
            require_free(port, what="the name server", option="nameserver_port")


def test_a_port_next_to_one_in_use_is_passed_over(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "_RANGE", range(port - 1, port))
        with pytest.raises(EngineError, match="no free port"):
            free_port(also=(1,), avoid=set())
