import pytest

import waiting


@pytest.fixture
def eventually():
    """Waits until a condition holds and returns what it gave; fails after a bounded time."""
    return waiting.eventually
