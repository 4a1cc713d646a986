import threading
import time

import pytest


def ours():
    return {thread for thread in threading.enumerate() if thread.name.startswith("gimbalmq-")}


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test of a client leaves no thread of ours behind."""
    before = ours()
    yield
    deadline = time.monotonic() + 20.0
    while ours() - before:
        assert time.monotonic() < deadline, ours() - before
        time.sleep(0.01)
