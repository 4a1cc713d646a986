from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from broker.store.storing import opened
from gimbalmq.broker.store import StoreError
from gimbalmq.broker.store.lock import DirectoryLock

HOLD = """
import sys
from pathlib import Path
from gimbalmq.broker.store.lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_and_told_whom_to_stop(tmp_path, holder):
    with pytest.raises(StoreError, match=f"in use by process {holder.pid}: stop that one first"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_killed_process_holds_nothing(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    opened(tmp_path).close()


def test_one_process_cannot_open_a_directory_twice(tmp_path):
    store = opened(tmp_path)
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_a_lock_can_be_released_twice(tmp_path):
    lock = DirectoryLock(tmp_path / "new" / "directory")
    lock.release()
    lock.release()
