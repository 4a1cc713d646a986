"""The asyncio driver: what it promises in common with the engine thread."""

import asyncio
import threading

import pytest

from gimbalmq.errors import CallTimeoutError, StateError, TransportError
from gimbalmq.flows.effects import call, sleep
from gimbalmq.runtime.aio import AioDriver
from gimbalmq.wire.command import Command, response_to
from transport.server import LoopbackServer


class Client:
    def __init__(self):
        self.events = []

    def on_connected(self, address):
        self.events.append("connected")

    def on_disconnected(self, address, error):
        self.events.append(f"lost: {error}")

    def on_request(self, address, request):
        self.events.append(("asked", request.code))
        return None if request.is_oneway else response_to(request, remark="here")


def on_a_loop(scenario, **options):
    """Run a scenario with a driver and its client, and close the driver."""

    async def main():
        client = Client()
        driver = AioDriver(client, **options)
        try:
            async with asyncio.timeout(15):
                return await scenario(driver, client)
        finally:
            await driver.close()
            assert driver._timers == set()
            assert driver._open == set()

    return asyncio.run(main())


async def until(condition):
    while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
        await asyncio.sleep(0.005)


def test_many_calls_share_one_connection_and_get_their_own_answers():
    async def scenario(driver, client):
        answers = await asyncio.gather(
            *(driver.run(call(server.address, Command(code), 5.0)) for code in range(50))
        )
        assert [answer.remark for answer in answers] == [str(code) for code in range(50)]
        assert client.events == ["connected"]

    with LoopbackServer(lambda request: response_to(request, remark=str(request.code))) as server:
        on_a_loop(scenario)
        assert server.connects == 1


def test_a_silent_server_is_given_up_and_the_connection_with_it():
    async def scenario(driver, client):
        with pytest.raises(CallTimeoutError, match=r"did not answer within 0\.2 s"):
            await driver.run(call(server.address, Command(1), 0.2))
        assert any("did not answer" in str(event) for event in client.events)

    with LoopbackServer(lambda _request: None) as server:
        on_a_loop(scenario)


def test_a_lost_connection_fails_what_waits_and_is_opened_again_after_a_pause():
    def ask_again_at_once():
        errors = []
        for code in (7, 8):
            try:
                yield from call(server.address, Command(code), 9.0)
            except TransportError as error:
                errors.append(str(error))
        return errors

    async def scenario(driver, client):
        waiting = asyncio.create_task(driver.run(ask_again_at_once()))
        await until(lambda: 7 in server.codes)
        server.drop()
        lost, refused = await waiting
        assert "closed the connection" in lost or "broke" in lost
        assert "trying again in" in refused
        await driver.run(sleep(0.15))
        assert (await driver.run(call(server.address, Command(8), 9.0))).code == 0
        assert client.events[0] == client.events[-1] == "connected"

    with LoopbackServer(lambda r: None if r.code == 7 else response_to(r)) as server:
        on_a_loop(scenario)


def test_a_cancelled_call_is_forgotten_and_the_connection_goes_on():
    async def scenario(driver, _client):
        waiting = asyncio.create_task(driver.run(call(server.address, Command(7), 9.0)))
        await until(lambda: 7 in server.codes)
        waiting.cancel()
        await asyncio.wait([waiting])
        (connection,) = driver._connections.values()
        assert connection.idle
        assert (await driver.run(call(server.address, Command(8), 9.0))).code == 0

    with LoopbackServer(lambda r: None if r.code == 7 else response_to(r)) as server:
        on_a_loop(scenario)
        assert server.connects == 1


def test_requests_of_the_server_are_answered_and_late_answers_sent():
    async def scenario(driver, client):
        await driver.run(call(server.address, Command(1), 20.0))
        server.push(Command(40, opaque=77))
        await until(lambda: ("asked", 40) in client.events)
        driver.answer(server.address, response_to(Command(41, opaque=78)))
        driver.notify(server.address, Command(42))
        await until(lambda: 42 in server.codes)

    with LoopbackServer() as server:
        on_a_loop(scenario)


def test_closing_fails_what_waits_and_refuses_what_comes():
    async def scenario(driver, _client):
        waiting = asyncio.create_task(driver.run(call(server.address, Command(7), 9.0)))
        later = asyncio.create_task(driver.run(call("127.0.0.1:9", Command(7), 9.0)))
        await until(lambda: 7 in server.codes)
        await driver.close()
        with pytest.raises(TransportError, match="stopped"):
            await waiting
        with pytest.raises(TransportError):
            await later
        with pytest.raises(StateError, match="stopped"):
            driver.post(print)
        with pytest.raises(TransportError, match="stopping"):
            await driver.run(call(server.address, Command(7), 9.0))

    with LoopbackServer(lambda _request: None) as server:
        on_a_loop(scenario)


def test_other_threads_post_and_timers_can_be_cancelled():
    async def scenario(driver, _client):
        ran = []
        thread = threading.Thread(target=lambda: driver.post(lambda: ran.append("posted")))
        thread.start()
        driver.call_later(0.0, lambda: ran.append("never")).cancel()
        driver.post(lambda: 1 / 0)  # logged; it stops nothing
        await until(lambda: ran)
        thread.join()
        assert ran == ["posted"]

    on_a_loop(scenario)


def test_a_server_that_cannot_be_reached_in_time_is_said_so():
    async def scenario(driver, _client):
        driver.notify("127.0.0.1:9", Command(1))
        driver.disconnect("127.0.0.1:10")  # nothing there: harmless
        with pytest.raises(TransportError, match="cannot connect"):
            await driver.run(call("127.0.0.1:9", Command(1), 20.0))

    on_a_loop(scenario, connect_timeout_s=1.0)
