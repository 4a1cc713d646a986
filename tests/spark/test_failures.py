from __future__ import annotations

import os
import sys

import pytest
from pyspark.errors import PySparkException

from gimbalmq.errors import AccessDeniedError, ConfigurationError, ProtocolError, SendError
from gimbalmq.spark.failures import clear_errors, plain_errors, sentence_of

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


class FromSpark(PySparkException):
    """As Spark gives it: a text that somebody else made."""

    def __init__(self, text):
        self._text = text

    def __str__(self):
        return self._text


IN_A_TASK = "An exception was thrown from the Python worker:\ngimbalmq.errors.{}\n SQLSTATE: 38000"
IN_A_STREAM = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: [X] Failed: gimbalmq.errors.{}"
)


@pytest.mark.parametrize("form", [IN_A_TASK, IN_A_STREAM])
@pytest.mark.parametrize("kind", [ProtocolError, ConfigurationError, AccessDeniedError, SendError])
def test_the_caller_gets_our_error_with_its_sentence_alone(form, kind):
    from_spark = FromSpark(form.format(f"{kind.__name__}: option 'x': use y"))
    with pytest.raises(kind) as caught, clear_errors():
        raise from_spark
    assert str(caught.value) == "option 'x': use y"
    assert caught.value.__cause__ is from_spark
    assert sentence_of(from_spark) == "option 'x': use y"


@pytest.mark.parametrize(
    "text",
    ["[TABLE_NOT_FOUND] no table", "gimbalmq.errors.NoSuchError: x", "gimbalmq.errors.Final: x"],
)
def test_errors_of_others_stay_as_they_are(text):
    from_spark = FromSpark(f"\n  {text}\nmore")
    with pytest.raises(FromSpark) as caught, clear_errors():
        raise from_spark
    assert caught.value is from_spark
    assert sentence_of(from_spark) == text


def test_an_error_without_a_word_is_told_as_such():
    assert sentence_of(FromSpark("")) == "Spark failed without a word"
