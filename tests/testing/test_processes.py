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


def test_what_one_says_before_it_ends_counts_however_soon_it_ends(process, monkeypatch):
    server = process("import sys; sys.stdin.read(); print('boot success', flush=True)")
    server.start()
    read = server.log_text

    def read_just_before_it_speaks_and_ends():
        text = read()
        server.pipes.stdin.close()
        server.wait_stopped(timeout_s=30)
        return text

    monkeypatch.setattr(server, "log_text", read_just_before_it_speaks_and_ends)
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


#: What a broker of RocketMQ 5.5.0 writes whose port is taken.
PORT_TAKEN = Path(__file__).with_name("port_taken.log")


def test_the_end_of_a_log_begins_with_the_reasons_that_stand_further_up():
    assert last_lines(PORT_TAKEN.read_text("utf-8")).splitlines()[:4] == [
        "    java.lang.IllegalStateException: Failed to bind to 127.0.0.1:29998",
        "    Caused by: java.net.BindException: Address already in use",
        "    ...",
        "    \tSuppressed: java.lang.RuntimeException: Rethrowing promise failure cause",
    ]


def test_a_reason_is_shown_once_and_of_many_the_last():
    frames = [f"\tat Some.frame({number})" for number in range(15)]
    text = "\n".join([*(f"a.b.Error: {n // 2}" for n in range(20)), "Error: 3 of 4", *frames])
    shown = last_lines(text).splitlines()
    assert shown[:6] == [*(f"    a.b.Error: {n}" for n in range(5, 10)), "    ..."]
    assert shown[6:] == [f"    {line}" for line in frames]
    assert last_lines("java.lang.Error\n" + "\n".join(frames)).startswith("    java.lang.Error\n")
    named = 'Exception in thread "main" a.b.C$D: no\n'
    assert last_lines(named + "\n".join(frames)).startswith(f"    {named}    ...")


def test_a_server_that_does_not_start_says_why_before_the_end_of_its_log(process):
    server = process(f"print(open({str(PORT_TAKEN)!r}).read()); raise SystemExit(255)")
    server.start()
    expected = r"(?s)exit code 255\).*BindException: Address already in use\n    \.\.\.\n"
    with pytest.raises(EngineError, match=expected):
        server.wait_for_line("boot success", timeout_s=30)


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
