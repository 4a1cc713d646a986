"""A disk that is full or refuses: a clear error to the sender, reads go on, and it recovers."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.storing import NOW, BrokenDisk, bodies, crash, message, opened, put, segments
from gimbalmq.broker.store import FlushPolicy, StoreError


@pytest.fixture
def disk():
    return BrokenDisk()


@pytest.fixture
def store(tmp_path, disk):
    store = opened(tmp_path, disk)
    put(store, b"before", KEYS="k")
    yield store
    disk.broken.clear()
    disk.room = None
    store.close()


@pytest.mark.parametrize("partial", [0, 1, 40, 150])
def test_a_full_disk_is_an_error_that_says_what_to_do_and_reads_go_on(store, disk, partial):
    disk.broken["write_at"], disk.partial = errno.ENOSPC, partial
    with pytest.raises(StoreError, match="disk is full: free space") as error:
        put(store, b"refused" * 20)
    assert error.value.retryable
    assert "/log/" in error.value.path
    assert bodies(store) == [b"before"]
    assert store.bounds("orders", 0) == (0, 1)
    assert len(store.find("orders", "k", 0, 1 << 60, 9)) == 1


@pytest.mark.parametrize("partial", [0, 40, 150])
def test_appends_succeed_again_when_there_is_space(store, disk, tmp_path, partial):
    disk.broken["write_at"], disk.partial = errno.ENOSPC, partial
    for _ in range(3):
        with pytest.raises(StoreError):
            put(store, b"refused" * 20)
    disk.broken.clear()
    put(store, b"a", b"b")
    assert bodies(store) == [b"before", b"a", b"b"]
    crash(store)
    again = opened(tmp_path)
    assert again.report.cut_bytes == 0
    assert bodies(again) == [b"before", b"a", b"b"]
    again.close()


def test_a_crash_right_after_a_failed_write_shows_nothing_of_it(store, disk, tmp_path):
    disk.broken["write_at"], disk.partial = errno.ENOSPC, 300
    with pytest.raises(StoreError):
        store.append([message(b"refused" * 20), message(b"refused" * 20)], NOW)
    crash(store)
    again = opened(tmp_path)
    assert again.report.cut_bytes > 0
    assert bodies(again) == [b"before"]
    again.close()


def test_no_new_segment(store, disk, tmp_path):
    put(store, *[b"x" * 900] * 3)
    disk.broken["resize"] = errno.EFBIG
    with pytest.raises(StoreError, match=r"make the log segment .*ulimit -f"):
        put(store, b"y" * 900)
    assert len(segments(tmp_path)) == 1
    disk.broken.clear()
    put(store, b"y" * 900)
    assert len(segments(tmp_path)) == 2
    assert bodies(store) == [b"before", *[b"x" * 900] * 3, b"y" * 900]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission"),
        (errno.EIO, "device failed"),
        (errno.EDQUOT, "quota"),
        (errno.EXDEV, "system log"),
    ],
)
def test_other_refusals_have_their_own_words(store, disk, number, words):
    disk.broken["write_at"] = number
    with pytest.raises(StoreError, match=words):
        put(store, b"x")


def test_a_failed_flush_is_told_and_made_good_by_the_next(tmp_path, disk):
    store = opened(tmp_path, disk, flush=FlushPolicy.EACH)
    put(store, b"a")
    safe = store._log.flushed_until
    disk.broken["sync"] = errno.EIO
    with pytest.raises(StoreError, match="flush"):
        put(store, b"b" * 1000)
    assert store._log.flushed_until == safe
    assert bodies(store) == [b"a", b"b" * 1000]
    disk.broken.clear()
    rewritten = []
    write_at = disk.write_at
    type(disk).write_at, kept = (
        lambda self, descriptor, data, at: rewritten.append((at, bytes(data))) or write_at(descriptor, data, at),
        type(disk).write_at,
    )  # fmt: skip
    try:
        store.flush()
    finally:
        type(disk).write_at = kept
    ((at, data),) = rewritten
    assert (at, len(data)) == (safe, store.log_bounds()[1] - safe)
    assert store._log.flushed_until == store.log_bounds()[1]
    store.close()
    assert opened(tmp_path).report.clean


def test_a_tick_never_raises_for_the_disk_and_tries_again(tmp_path, disk):
    store = opened(tmp_path, disk, flush=FlushPolicy.INTERVAL)
    put(store, *[b"x" * 900] * 9)
    disk.broken["sync"] = errno.EIO
    for moment in (1000, 2000):
        store.tick(NOW + moment)
        assert "device failed" in store.problem
    disk.broken.clear()
    for moment in range(3000, 4000, 100):
        store.tick(NOW + moment)
    assert store.problem is None
    assert store._log.flushed_until == store.log_bounds()[1]
    assert store._checkpoints.indexed_until == store._log.active.start
    store.close()


def test_closing_on_a_full_disk_lets_go_of_the_directory(tmp_path, disk):
    store = opened(tmp_path, disk)
    put(store, b"a")
    disk.broken["write_at"] = errno.ENOSPC
    with pytest.raises(StoreError):
        store.close()
    disk.broken.clear()
    store = opened(tmp_path)
    assert bodies(store) == [b"a"]
    store.close()


def test_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path, disk):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="choose another data directory"):
        opened(tmp_path / "file")
    disk.broken["open"] = errno.EACCES
    with pytest.raises(StoreError, match="permission"):
        opened(tmp_path / "data", disk)
    disk.broken.clear()
    opened(tmp_path / "data", disk).close()


@settings(max_examples=40, deadline=None)
@given(room=st.integers(0, 60_000), sizes=st.lists(st.integers(0, 900), min_size=1, max_size=80))
def test_a_disk_that_fills_up_at_any_byte_keeps_exactly_what_was_acknowledged(
    tmp_path_factory, room, sizes
):
    directory = tmp_path_factory.mktemp("full")
    disk = BrokenDisk()
    store = opened(directory, disk)
    disk.room = room
    stored = []
    for number, size in enumerate(sizes):
        body = b"%d:" % number + bytes(size)
        try:
            put(store, body, KEYS=f"k{number}")
        except StoreError:
            if number % 3 == 0:  # somebody tidies up, a little
                disk.broken.clear()
                disk.room = 1500
            continue
        stored.append(body)
        store.tick(NOW + number)
    assert bodies(store) == stored
    crash(store)
    store = opened(directory)
    assert bodies(store) == stored
    store.close()


LIMITED = """
import resource, signal, sys
from gimbalmq.broker.store import FlushPolicy, StoredMessage, StoreError, StoreOptions, open_store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
options = StoreOptions(flush=FlushPolicy.NONE, segment_bytes=90_000)
store = open_store(sys.argv[1], store_host=("127.0.0.1", 1), options=options)
queue = lambda: store.bounds("orders", 0)[1]
for number in range(6000):  # the index file meets the limit after some 4,000 entries
    try:
        store.append([StoredMessage("orders", 0, b"%d" % number)], 1)
    except StoreError as error:
        print(error)
        break
stored = queue()
assert len(store.read("orders", 0, stored - 1, max_messages=1, max_bytes=1).records) == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append([StoredMessage("orders", 0, b"last")], 1)
assert queue() == stored + 1
store.close()
print(stored)
"""


def test_a_real_limit_of_the_operating_system_is_met_and_lifted(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    error, stored = result.stdout.splitlines()
    assert "raise it (ulimit -f)" in error
    store = opened(tmp_path)
    assert store.report.clean
    assert [int(body) for body in bodies(store)[:-1]] == list(range(int(stored)))
    store.close()
