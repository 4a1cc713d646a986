from __future__ import annotations

import os
import sys

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.failures import plain_errors

SWITCH = "SPARK_HIDE_TRACEBACK"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.delitem(sys.modules, "pyspark.worker_util", raising=False)
    # What the code under test sets is undone, too.
    monkeypatch.setattr(os, "environ", dict(os.environ))


def fail(error):
    with plain_errors():
        raise error


def test_in_a_worker_our_errors_are_shown_without_their_traceback(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", sys)
    with pytest.raises(ConfigurationError):
        fail(ConfigurationError("option 'x'"))
    assert os.environ[SWITCH] == "1"


def test_other_errors_keep_their_traceback(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", sys)
    with pytest.raises(KeyError):
        fail(KeyError("ours to fix"))
    assert SWITCH not in os.environ


def test_outside_of_a_worker_nothing_is_switched():
    with pytest.raises(ConfigurationError):
        fail(ConfigurationError("option 'x'"))
    assert SWITCH not in os.environ
