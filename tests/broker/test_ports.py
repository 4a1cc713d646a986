"""Claims of ports: between processes, through kills and restarts, and without leaving anything."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gimbalmq.broker import EmbeddedCluster, ports
from gimbalmq.broker.ports import PortClaims, listen
from gimbalmq.errors import EngineError

#: Claims three times a port and its neighbour, says which, and keeps them until it is ended.
CLAIMER = """
import sys
from gimbalmq.broker import ports
ports._RANGE = range(int(sys.argv[1]), int(sys.argv[2]))
claims = ports.PortClaims()
try:
    print(*(claims.choose(also=(1,)) for _ in range(3)), flush=True)
except ports.EngineError:
    print("none", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A temporary directory of the test's own, so that only it claims, and ports beside the others'."""
    monkeypatch.setattr(ports, "_RANGE", range(12_000, 20_000))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / f"gimbalmq-ports-{os.getuid()}"


@pytest.fixture
def claims(folder):
    with PortClaims() as made:
        yield made


def only(monkeypatch, *numbers):
    """Leave the choice among these ports."""
    monkeypatch.setattr(ports, "_RANGE", range(min(numbers), max(numbers) + 1))
    return min(numbers)


def descriptors():
    found = {}
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing needed
            found[path.name] = str(path.readlink())
    return found


def port_of(address):
    return int(address.rpartition(":")[2])


def test_a_chosen_port_and_its_neighbours_are_not_chosen_again(claims, folder):
    first = claims.choose(also=(-2, 1))
    own = {first - 2, first, first + 1}
    assert {int(path.name) for path in folder.iterdir()} == own
    with PortClaims() as others:
        assert not own & {others.choose() for _ in range(50)}
        assert claims.choose() not in own


def test_a_claimed_port_that_looks_free_is_passed_over(claims, folder, monkeypatch):
    port = only(monkeypatch, claims.choose())
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    with PortClaims() as others, pytest.raises(EngineError, match="no free port"):
        others.choose()


def test_a_neighbour_that_is_claimed_claims_nothing(claims, folder, monkeypatch):
    port = only(monkeypatch, claims.choose())
    only(monkeypatch, port - 1)
    with PortClaims() as others:
        with pytest.raises(EngineError, match="no free port"):
            others.choose(also=(1,))
        assert [path.name for path in folder.iterdir()] == [str(port)]


def test_a_port_next_to_one_in_use_is_passed_over(claims, folder, monkeypatch):
    with listen("127.0.0.1", 0, what="a server") as server:
        only(monkeypatch, server.getsockname()[1] - 1)
        with pytest.raises(EngineError, match="no free port"):
            claims.choose(also=(1,))
    assert list(folder.iterdir()) == []


def test_a_released_port_is_free_and_its_file_is_gone(folder, monkeypatch):
    with PortClaims() as claims:
        port = only(monkeypatch, claims.choose())
    assert list(folder.iterdir()) == []
    with PortClaims() as others:
        assert others.choose() == port
        others.release(port)
        others.release(port)
        assert others.choose() == port


def test_a_port_that_the_caller_chose_is_named_when_it_is_taken(claims, folder):
    with listen("127.0.0.1", 0, what="a server") as server:
        port = server.getsockname()[1]
        with pytest.raises(EngineError, match=rf"port {port} for the till is taken.* with --till"):
            claims.take(port, what="the till", option="--till")
    claims.take(port, what="the till", option="--till")
    with PortClaims() as others, pytest.raises(EngineError, match="process or cluster"):
        others.take(port, what="the till", option="--till")


def start_claimer(first, last):
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMER, str(first), str(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()


def test_processes_beside_each_other_never_get_the_same_port_and_a_killed_one_gives_its_back(
    folder, monkeypatch
):
    with PortClaims() as room:
        first = room.choose(also=range(1, 9))
    # Room for one of them.
    monkeypatch.setattr(ports, "_RANGE", range(first, first + 7))
    process, chosen = start_claimer(first, first + 7)
    with process:
        own = {int(port) + n for port in chosen for n in (0, 1)}
        assert len(own) == 6
        other, refused = start_claimer(first, first + 7)
        with other:
            assert refused == ["none"]
            other.kill()
        process.kill()
    with PortClaims() as claims:
        assert {claims.choose() for _ in range(7)} == set(range(first, first + 7))


def test_a_program_that_we_start_does_not_inherit_a_claim(claims, folder):
    claims.choose()
    listed = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], check=True, capture_output=True, text=True, close_fds=False
    ).stdout
    assert str(folder) not in listed


#: Says whether a released port is free again while a process lives that was forked during a claim.
FORKED = """
import os
from gimbalmq.broker import ports
claims = ports.PortClaims()
port = claims.choose()
reader, writer = os.pipe()
if not os.fork():
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
claims.close()
ports._RANGE = range(port, port + 1)
print(port == ports.PortClaims().choose())
os.close(writer)
os.wait()
"""


def test_a_process_that_was_forked_does_not_keep_a_released_port(folder):
    said = subprocess.run([sys.executable, "-c", FORKED], check=True, capture_output=True)
    assert said.stdout == b"True\n"


def test_the_folder_is_for_this_user_alone(claims, folder):
    claims.choose()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="only this user may enter"):
        claims.choose()
    folder.chmod(0o700)


def test_a_link_in_place_of_the_folder_is_refused(claims, folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(EngineError, match="only this user may enter"):
        claims.choose()
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(claims, folder):
    folder.write_text("in the way")
    with pytest.raises(EngineError, match=rf"cannot be claimed in {folder} .*TMPDIR"):
        claims.choose()


def test_a_file_that_was_tidied_away_harms_nobody(folder, monkeypatch):
    claims, others = PortClaims(), PortClaims()
    port = only(monkeypatch, claims.choose())
    (folder / str(port)).unlink()
    assert others.choose() == port
    claims.close()
    # The file is that of the second claim, and stays.
    with PortClaims() as third, pytest.raises(EngineError, match="no free port"):
        third.choose()
    others.close()
    assert list(folder.iterdir()) == []


def test_a_socket_that_listens_leaves_its_port_to_others_when_it_is_closed(folder):
    before = descriptors()
    with listen("127.0.0.1", 0, what="a server") as server:
        assert server.getsockname()[1] in ports._RANGE
        assert list(folder.iterdir()) == []
    assert descriptors() == before


def test_an_interface_that_is_not_ours_is_named_at_once(claims, folder):
    words = (
        r"a server cannot listen on 192\.0\.2\.1:\d+ \(Cannot.*: give an address of this machine"
    )
    with pytest.raises(EngineError, match=words):
        listen("192.0.2.1", 0, what="a server", claims=claims)
    assert list(folder.iterdir()) == []


def test_a_given_port_may_be_used_on_two_interfaces(folder):
    with EmbeddedCluster() as one:
        port = port_of(one.nameserver)
        with EmbeddedCluster(host="127.0.0.2", nameserver_port=port) as other:
            assert other.nameserver == f"127.0.0.2:{port}"
        with PortClaims() as others, pytest.raises(EngineError, match="taken"):
            others.take(port, what="a server", option="port")


@pytest.mark.parametrize("processes", [False, True])
def test_a_killed_server_finds_its_port_free_when_it_is_restarted(folder, monkeypatch, processes):
    with EmbeddedCluster(processes=processes) as cluster:
        held = {cluster.nameserver, cluster.brokers[0].address}
        assert {int(path.name) for path in folder.iterdir()} == set(map(port_of, held))
        cluster.kill("broker-a")
        only(monkeypatch, port_of(cluster.brokers[0].address))
        with pytest.raises(EngineError, match="no free port"):
            listen("127.0.0.1", 0, what="another server")
        cluster.restart("broker-a")
        assert cluster.brokers[0].running
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("processes", [False, True])
def test_a_cluster_leaves_no_descriptor_however_it_ends(folder, processes):
    with EmbeddedCluster(processes=processes):
        pass  # what Python opens once
    before = descriptors()
    for _ in range(3):
        with EmbeddedCluster(processes=processes) as cluster:
            cluster.kill("broker-a")
    with (
        listen("127.0.0.1", 0, what="a server") as server,
        pytest.raises(EngineError, match="cannot listen"),
    ):
        EmbeddedCluster(broker_ports=[server.getsockname()[1]], processes=processes).start()
    assert descriptors() == before
    assert list(folder.iterdir()) == []
