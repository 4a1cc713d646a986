import logging

import pytest

from gimbalmq.client.hooks import with_hooks


def test_without_hooks_the_listener_is_called_as_it_is():
    assert with_hooks(print, (), ()) is print


def test_hooks_run_around_the_listener_in_order():
    calls = []
    listener = with_hooks(
        lambda message: calls.append(f"listener {message}") or "verdict",
        [lambda m: calls.append(f"before1 {m}"), lambda m: calls.append(f"before2 {m}")],
        [lambda m, error, took_s: calls.append(f"after {m} {error} {took_s >= 0}")],
    )
    assert listener("m") == "verdict"
    assert calls == ["before1 m", "before2 m", "listener m", "after m None True"]


def test_what_the_listener_raises_is_told_and_raised():
    errors = []

    def fail(_message):
        raise ValueError("no")

    listener = with_hooks(fail, [], [lambda _m, error, _s: errors.append(str(error))])
    with pytest.raises(ValueError, match="no"):
        listener("m")
    assert errors == ["no"]


def test_a_hook_before_may_refuse_the_message():
    called = []

    def refuse(_message):
        raise PermissionError("not you")

    with pytest.raises(PermissionError):
        with_hooks(called.append, [refuse], [])("m")
    assert called == []


def test_a_hook_after_that_fails_changes_nothing(caplog):
    def fail(*_args):
        raise ValueError("oops")

    with caplog.at_level(logging.ERROR):
        assert with_hooks(lambda m: m, [], [fail])("m") == "m"
    assert "oops" in caplog.text
