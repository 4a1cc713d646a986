from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gimbalmq.errors import EngineError, StateError
from gimbalmq.testing.processes import JavaProcess, last_lines

#: Says that it is ready, then lives until its input ends or a signal comes.
PATIENT = "print('boot success', flush=True); import sys; sys.stdin.read()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + PATIENT


@pytest.fixture
def process(tmp_path):
    made = []

    def make(program: str) -> JavaProcess:
        made.append(
            JavaProcess("the server", [sys.executable, "-c", program], log=tmp_path / "log")
        )
        return made[-1]

    yield make
    for one in made:
        one.kill()


def test_it_is_ready_when_its_log_says_so(process):
    server = process(PATIENT)
    server.start()
    server.wait_for_line("boot success", timeout_s=30)
    assert server.running
    assert server.exit_code is None


def test_one_that_ends_before_it_is_ready_shows_the_end_of_its_log(process):
    server = process("print('Address already in use'); raise SystemExit(3)")
    server.start()
    expected = r"(?s)the server did not start \(exit code 3\).*Address already in use"
    with pytest.raises(EngineError, match=expected):
        server.wait_for_line("boot success", timeout_s=30)


def test_one_that_is_too_slow_is_reported(process):
    server = process("import sys; sys.stdin.read()")
    server.start()
    with pytest.raises(EngineError, match=r"not ready after 0\.1 s"):
        server.wait_for_line("boot success", timeout_s=0.1)


def test_the_log_of_an_earlier_run_does_not_count(process):
    server = process(PATIENT)
    server.start()
    server.wait_for_line("boot success", timeout_s=30)
    server.kill()
    server.start()
    assert server.log_text().count("boot success") <= 1


def test_it_cannot_be_started_twice(process):
    server = process(PATIENT)
    server.start()
    with pytest.raises(StateError, match="already running"):
        server.start()


def test_a_clean_stop_is_a_sigterm(process):
    server = process(PATIENT)
    server.start()
    server.wait_for_line("boot success", timeout_s=30)
    server.ask_to_stop()
    server.wait_stopped(timeout_s=30)
    assert server.exit_code == -signal.SIGTERM


def test_one_that_does_not_stop_is_killed_after_the_bound(process):
    server = process(DEAF)
    server.start()
    server.wait_for_line("boot success", timeout_s=30)
    server.ask_to_stop()
    server.wait_stopped(timeout_s=0.1)
    assert server.exit_code == -signal.SIGKILL


def test_a_paused_one_can_be_stopped(process):
    server = process(PATIENT)
    server.start()
    server.wait_for_line("boot success", timeout_s=30)
    server.pause()
    assert server.running
    server.ask_to_stop()
    server.wait_stopped(timeout_s=30)
    assert server.exit_code == -signal.SIGTERM


def test_a_pause_is_complete_when_the_call_returns(process):
    server = process(PATIENT)
    server.start()
    server.wait_for_line("boot success", timeout_s=30)
    server.pause()
    states = [
        path.read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        for path in Path(f"/proc/{server.pid}/task").glob("*/stat")
    ]
    assert set(states) == {"T"}
    server.resume()
    assert server.running


def test_a_process_that_never_started_has_no_pid_and_needs_no_stop(process):
    server = process(PATIENT)
    with pytest.raises(StateError, match="not started"):
        _ = server.pid
    with pytest.raises(StateError, match="not running"):
        server.send_signal(signal.SIGTERM)
    server.ask_to_stop()
    server.wait_stopped(timeout_s=0)
    assert server.log_text() == ""


def test_settings_of_the_shell_that_change_how_rocketmq_starts_are_dropped(process, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "elsewhere:9876")
    server = process("import os; print('addr', os.environ.get('NAMESRV_ADDR'), flush=True)")
    server.start()
    server.wait_for_line("addr None", timeout_s=30)


def test_the_end_of_a_log_leaves_out_the_noise():
    text = "first\n12:00 |-INFO in logback\n\nlast\n"
    assert last_lines(text) == "    first\n    last"
    assert last_lines(text, 1) == "    last"
    assert last_lines("") == "    (nothing was written)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_waits_until_the_process_is_known(process, monkeypatch, number):
    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    popen = subprocess.Popen

    def start_and_be_interrupted(*arguments, **options):
        started = popen(*arguments, **options)
        signal.raise_signal(number)
        return started

    monkeypatch.setattr(subprocess, "Popen", start_and_be_interrupted)
    server, before = process(PATIENT), signal.signal(number, stop)
    try:
        with pytest.raises(Stopped):
            server.start()
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert server.running
