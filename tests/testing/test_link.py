from __future__ import annotations

import queue
import subprocess
import sys
import threading

import msgspec
import pytest

from gimbalmq.errors import BrokerError, EngineError
from gimbalmq.testing.link import Link
from gimbalmq.testing.processes import JavaProcess

#: Speaks the peers' protocol: answers each request according to its operation.
PROGRAM = """
import json, os, sys
def say(**line):
    print(json.dumps(line), flush=True)
say(event="ready")
held = None
for line in sys.stdin:
    request = json.loads(line)
    match request["op"]:
        case "echo": say(id=request["id"], ok=request["value"])
        case "hold":
            held = request["id"]
            say(event="held")
        case "swap":
            say(id=request["id"], ok="second")
            say(id=held, ok="first")
        case "fail": say(id=request["id"], error="no disk", type="java.io.IOException")
        case "refuse": say(id=request["id"], error="no route", type="MQClientException", code=17)
        case "unset": say(id=request["id"], error="bad", type="MQClientException", code=-1)
        case "die":
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(9)
        case "break off":
            print('{"id":', end="", flush=True)
            os._exit(9)
        case "silent": pass
"""


@pytest.fixture
def events():
    return queue.SimpleQueue()


@pytest.fixture
def link(tmp_path, events):
    process = JavaProcess(
        "peer",
        [sys.executable, "-c", PROGRAM],
        log=tmp_path / "log",
        output=subprocess.PIPE,
    )
    process.start()
    link = Link(process, events.put)
    yield link
    process.kill()
    link.join(10)


def _ask(link, op, timeout_s=30.0, **fields):
    return msgspec.json.decode(link.request(op, "a", timeout_s=timeout_s, **fields))


def test_an_answer_comes_back(link):
    assert _ask(link, "echo", value={"x": [1, None]}) == {"x": [1, None]}


def test_answers_find_their_requests_in_any_order(link, events):
    first: list[str] = []
    thread = threading.Thread(target=lambda: first.append(_ask(link, "hold")))
    thread.start()
    assert [events.get(timeout=30).event for _ in range(2)] == ["ready", "held"]
    assert _ask(link, "swap") == "second"
    thread.join(30)
    assert first == ["first"]


def test_reports_of_the_process_are_passed_on(link, events):
    assert events.get(timeout=30).event == "ready"


def test_a_failure_carries_the_words_and_the_class(link):
    with pytest.raises(EngineError, match=r"could not fail: no disk \(java.io.IOException\)"):
        _ask(link, "fail")


def test_a_refusal_by_a_server_keeps_its_code(link):
    with pytest.raises(BrokerError) as caught:
        _ask(link, "refuse")
    assert caught.value.code == 17


def test_a_client_exception_without_a_code_is_no_refusal(link):
    with pytest.raises(EngineError):
        _ask(link, "unset")


def test_a_missing_answer_is_given_up_in_time_and_others_still_come(link):
    with pytest.raises(EngineError, match=r"no answer to 'silent' within 0\.1 s"):
        _ask(link, "silent", timeout_s=0.1)
    assert _ask(link, "echo", value=2) == 2


def test_the_death_of_the_process_fails_what_waits_and_what_comes_later(link):
    with pytest.raises(EngineError, match=r"(?s)ended.*out of memory"):
        _ask(link, "die")
    link.join(10)
    with pytest.raises(EngineError, match="ended"):
        _ask(link, "echo", value=1)


def test_a_process_that_is_killed_while_it_speaks_has_ended(link):
    with pytest.raises(EngineError, match="ended"):
        _ask(link, "break off", timeout_s=5.0)
