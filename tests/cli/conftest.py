import pytest

from gimbalmq.broker import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster():
    """A cluster in pure Python, for commands that talk to one."""
    with EmbeddedCluster(2) as cluster:
        yield cluster
