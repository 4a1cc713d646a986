"""How tests wait: for what must become true, and not for ever."""

import time


def eventually(condition, timeout_s=60.0, pause_s=0.02):
    """The first true value of a condition; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen within {timeout_s:g} s"
        time.sleep(pause_s)
    return found
