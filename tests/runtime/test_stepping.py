from gimbalmq.errors import TransportError
from gimbalmq.flows.effects import Instant, call, notify, now, sleep, together
from gimbalmq.runtime.stepping import FlowRun
from gimbalmq.wire.command import Command


class Handle:
    def __init__(self):
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Steps:
    """A driver that keeps what was asked for, and answers when the test says so."""

    def __init__(self):
        self.waiting = []
        self.notified = []

    def now(self):
        return Instant(5.0, 7)

    def notify(self, address, command):
        self.notified.append((address, command.code))

    def call(self, address, command, timeout_s, done):
        handle = Handle()
        self.waiting.append((done, handle))
        return handle

    def call_later(self, delay_s, action):
        handle = Handle()
        self.waiting.append((action, handle))
        return handle


def everything():
    instant = yield from now()
    yield from notify("a:1", Command(1))
    yield from sleep(0.5)
    try:
        yield from call("a:1", Command(2), 1.0)
    except TransportError as error:
        answer = yield from call("b:1", Command(3), 1.0)
        return instant.at_s, str(error), answer.code
    return None


def test_a_flow_goes_from_effect_to_effect_and_errors_are_thrown_into_it():
    driver, results = Steps(), []
    FlowRun(driver, everything(), results.append).start()
    assert driver.notified == [("a:1", 1)]
    driver.waiting.pop()[0]()
    driver.waiting.pop()[0](TransportError("gone"))
    driver.waiting.pop()[0](Command(9))
    assert results == [(5.0, "gone", 9)]


def test_an_error_of_ours_is_the_result():
    def fails():
        yield from notify("a:1", Command(1))
        raise TransportError("no")

    results = []
    FlowRun(Steps(), fails(), results.append).start()
    assert str(results[0]) == "no"


def test_a_cancelled_flow_is_closed_and_what_it_waits_for_forgotten():
    closed = []

    def waits():
        try:
            yield from call("a:1", Command(1), 1.0)
        finally:
            closed.append(True)

    driver, results = Steps(), []
    running = FlowRun(driver, waits(), results.append)
    running.start()
    running.cancel()
    assert driver.waiting[0][1].cancelled
    assert closed == [True]
    assert results == []


def asking(number):
    answer = yield from call(f"host-{number}:1", Command(number), 1.0)
    return answer.code


def test_flows_run_side_by_side_and_no_more_than_allowed():
    driver, results = Steps(), []
    flow = together([asking(number) for number in range(4)], at_once=2)
    FlowRun(driver, flow, results.append).start()
    assert len(driver.waiting) == 2
    driver.waiting.pop(1)[0](Command(11))
    assert len(driver.waiting) == 2, "the next one has its place"
    driver.waiting.pop(1)[0](TransportError("gone"))
    driver.waiting.pop(1)[0](Command(13))
    assert results == []
    driver.waiting.pop(0)[0](Command(10))
    ((first, second, third, fourth),) = results
    assert (first, second, fourth) == (10, 11, 13)
    assert str(third) == "gone"


def test_flows_that_never_wait_end_side_by_side_too():
    def immediate(number):
        yield from notify("a:1", Command(number))
        return number

    driver, results = Steps(), []
    FlowRun(driver, together(map(immediate, range(5_000)), at_once=2), results.append).start()
    assert results == [list(range(5_000))]
    FlowRun(driver, together([]), results.append).start()
    assert results[1] == []


def test_cancelling_ends_all_that_run_side_by_side():
    closed = []

    def waits(number):
        try:
            yield from asking(number)
        finally:
            closed.append(number)

    driver, results = Steps(), []
    running = FlowRun(driver, together(map(waits, range(3)), at_once=2), results.append)
    running.start()
    running.cancel()
    assert [handle.cancelled for _, handle in driver.waiting] == [True, True]
    assert (closed, results) == ([0, 1], [])
