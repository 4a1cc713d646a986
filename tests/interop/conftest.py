import time

import pytest


@pytest.fixture
def eventually():
    """Waits until a condition holds and returns what it gave; fails after a bounded time."""

    def wait(condition, timeout_s=60.0, pause_s=0.05):
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            assert time.monotonic() < deadline, "did not happen in time"
            time.sleep(pause_s)
        return found

    return wait
