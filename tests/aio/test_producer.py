import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from aio.conftest import until
from client.full_cluster import FullCluster
from client.small_cluster import Elsewhere, HoldingCluster
from client.test_producer_ways import exits, question
from gimbalmq import Message, PullConsumer, SendStatus
from gimbalmq.aio import Producer, PushConsumer, shared
from gimbalmq.client.batching import Batching
from gimbalmq.core.fault import FaultTolerance
from gimbalmq.errors import ConfigurationError, SendError, StateError, TransportError
from gimbalmq.wire.codes import RequestCode, version_ordinal
from transport.relay import Relay
from transport.server import BlackHole, LoopbackServer, closed_port


def stored(cluster, topic):
    """Every body of a topic, by queue, in order."""
    bodies = {}
    with PullConsumer("reader", nameserver=cluster.nameserver) as consumer:
        for queue in consumer.queues(topic):
            lowest, highest = consumer.bounds(queue)
            found = []
            while lowest < highest:
                result = consumer.pull(queue, lowest)
                found += [message.body for message in result.messages]
                lowest = result.next_offset
            bodies[queue] = found
    return bodies


def flat(bodies):
    return sorted(body for found in bodies.values() for body in found)


def test_many_sends_at_once_are_stored_once_each_and_spread_over_all_queues(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            return await asyncio.gather(
                *(producer.send(Message(topic, b"%03d" % number)) for number in range(200))
            )

    results = run(main())
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert len({result.message_id for result in results}) == 200
    bodies = stored(cluster, topic)
    assert flat(bodies) == [b"%03d" % number for number in range(200)]
    assert all(bodies.values())


def test_one_after_the_other_to_one_queue_keeps_the_order(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            queue = (await producer.queues(topic))[0]
            for number in range(5):
                await producer.send(Message(topic, b"%d" % number), queue=queue)
            return queue

    queue = run(main())
    assert stored(cluster, topic)[queue] == [b"0", b"1", b"2", b"3", b"4"]


def test_equal_keys_and_selectors_choose_one_queue(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            by_key = [
                await producer.send(Message(topic, b"x", sharding_key="42")) for _ in range(4)
            ]
            last = await producer.send(
                Message(topic, b"x"), selector=lambda queues, _message: queues[-1]
            )
            return {result.queue for result in by_key}, last.queue, await producer.queues(topic)

    by_key, last, queues = run(main())
    assert len(by_key) == 1
    assert last == queues[-1]


def test_a_batch_and_a_oneway_message_arrive(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            (result,) = await producer.send_batch(Message(topic, b"b%d" % n) for n in range(3))
            await producer.send_oneway(Message(topic, b"oneway"))
            return result

    assert run(main()).message_id.count(",") == 2
    assert flat(stored(cluster, topic)) == [b"b0", b"b1", b"b2", b"oneway"]


def test_automatic_batching_gives_every_message_its_own_result(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver, batching=True) as producer:
            results = await asyncio.gather(
                *(producer.send(Message(topic, b"%d" % number)) for number in range(20))
            )
            sends = [asyncio.create_task(producer.send(Message(topic, b"f"))) for _ in range(2)]
            await asyncio.sleep(0)
            await producer.flush(5.0)
            return results, await asyncio.gather(*sends)

    results, flushed = run(main())
    places = {(result.queue, result.queue_offset) for result in (*results, *flushed)}
    assert len(places) == 22
    assert len(flat(stored(cluster, topic))) == 22


def test_what_gathers_while_the_producer_stops_is_told_so(run):
    async def main():
        with HoldingCluster("orders") as cluster:
            options = {"batching": Batching(hold_s=20.0), "timeout_s": 0.5}
            producer = await Producer("shop", nameserver=cluster.address, **options).start()
            sender = producer._sender
            await producer.queues("orders")
            held = producer.send_async(Message("orders", b"x" * 5000))
            await until(lambda: len(cluster.held) == 1)
            stopping = asyncio.create_task(producer.stop())
            await until(lambda: producer.state == "stopping")
            late = asyncio.create_task(sender.send(Message("orders", b"x"), None, None, 3.0))
            await stopping
            async with asyncio.timeout(5.0):
                lost, _ = await asyncio.gather(late, held, return_exceptions=True)
            return lost

    assert isinstance(run(main()), StateError)


def test_only_so_many_messages_are_in_flight(run, cluster, topic):
    async def main():
        async with Producer(
            "shop", nameserver=cluster.nameserver, back_pressure_for_async_send_num=3
        ) as producer:
            most = 0

            async def send():
                nonlocal most
                await producer.send(Message(topic, b"x"))
                most = max(most, producer.stats().in_flight)

            await asyncio.gather(*(send() for _ in range(40)))
            return most, producer.stats().in_flight

    most, left = run(main())
    assert 1 <= most <= 3
    assert left == 0
    assert len(flat(stored(cluster, topic))) == 40


class SilentAfterRoute(LoopbackServer):
    """A name server and broker in one that answers routes, and sends not at all."""

    def __init__(self):
        from client.small_cluster import SmallCluster

        self._cluster = SmallCluster("orders")
        super().__init__(self._respond)
        self._cluster.address = self.address

    def _respond(self, request):
        return None if request.code == 310 else self._cluster._respond(request)

    def stop(self):
        super().stop()
        self._cluster.stop()


def test_a_cancelled_send_gives_its_room_back_and_is_forgotten(run):
    async def main(address):
        async with Producer("shop", nameserver=address, timeout_s=1.0) as producer:
            send = asyncio.create_task(producer.send(Message("orders", b"x"), timeout_s=60.0))
            await until(lambda: 310 in server.codes)
            (connection,) = [
                one
                for one in producer._running().shared.driver._connections.values()
                if not one.idle
            ]
            assert producer.stats().in_flight == 1
            send.cancel()
            with pytest.raises(asyncio.CancelledError):
                await send
            assert producer.stats().in_flight == 0
            await until(lambda: connection.idle)

    with SilentAfterRoute() as server:
        run(main(server.address))


def test_whoever_waits_for_room_too_long_gets_an_error_and_leaves_the_queue(run):
    async def main(address):
        async with Producer(
            "shop", nameserver=address, timeout_s=1.0, back_pressure_for_async_send_num=1
        ) as producer:
            first = asyncio.create_task(producer.send(Message("orders", b"x"), timeout_s=60.0))
            await until(lambda: 310 in server.codes)
            with pytest.raises(SendError, match=r"no room for another message within 0\.05 s"):
                await producer.send(Message("orders", b"y"), timeout_s=0.05)
            waiting = asyncio.create_task(producer.send(Message("orders", b"z"), timeout_s=60.0))
            await asyncio.sleep(0)
            waiting.cancel()
            first.cancel()
            await asyncio.wait([waiting, first])
            third = asyncio.create_task(producer.send(Message("orders", b"x"), timeout_s=9))
            await until(lambda: server.codes.count(310) == 2)
            with pytest.raises(TransportError, match="1 messages"):
                await producer.flush(0.05)
            third.cancel()
            await asyncio.wait([third])

    with SilentAfterRoute() as server:
        run(main(server.address))


# ---- sends that nobody waits for -----------------------------------------------------------------


def test_send_async_returns_futures_that_flush_waits_for(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            futures = [
                producer.send_async(Message(topic, b"%03d" % number)) for number in range(200)
            ]
            assert not any(future.done() for future in futures)
            await producer.flush(60.0)
            assert all(future.done() for future in futures)
            return [future.result() for future in futures]

    assert len({result.message_id for result in run(main())}) == 200
    assert flat(stored(cluster, topic)) == [b"%03d" % number for number in range(200)]


def test_stop_waits_for_send_async(run, cluster, topic):
    async def main():
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            return [producer.send_async(Message(topic, b"%d" % number)) for number in range(5)]

    futures = run(main())
    assert all(future.result() for future in futures)
    assert flat(stored(cluster, topic)) == [b"0", b"1", b"2", b"3", b"4"]


def test_the_errors_of_send_async_are_in_the_future_and_it_may_be_cancelled(run):
    with HoldingCluster("orders") as holding:

        async def main():
            async with Producer("shop", nameserver=holding.address) as producer:
                wrong = producer.send_async(Message("orders", b""))
                given_up = producer.send_async(Message("orders", b"x"))
                await until(lambda: holding.held)
                given_up.cancel()
                await producer.flush(20.0)
                assert given_up.cancelled()
                assert "is empty" in str(wrong.exception())
            with pytest.raises(StateError, match="is stopped, not running"):
                producer.send_async(Message("orders", b"x"))

        run(main())


@pytest.mark.rule("B7.5a")
@pytest.mark.parametrize(("way", "attempts"), [("send", 3), ("send_async", 1)])
def test_a_refusal_is_final_when_nobody_waits(run, way, attempts):
    with FullCluster("orders", send_code=2) as refusing:

        async def main():
            async with Producer("shop", nameserver=refusing.address) as producer:
                with pytest.raises(SendError) as refused:
                    await getattr(producer, way)(Message("orders", b"x"))
                assert refused.value.code == 2

        run(main())
        assert len(refusing.sent) == attempts


@pytest.mark.parametrize("way", ["send", "send_async"])
def test_a_batch_that_is_refused_for_now_is_tried_again(run, way):
    with FullCluster("orders") as cluster:
        cluster.refuse_once(2)

        async def main():
            async with Producer("shop", nameserver=cluster.address, batching=True) as producer:
                return await getattr(producer, way)(Message("orders", b"x"))

        assert run(main()).queue.topic == "orders"
        assert len(cluster.batches) == 2


@pytest.mark.rule("B7.5b")
def test_a_oneway_send_to_a_broker_that_is_gone_says_so(run):
    with Elsewhere(f"127.0.0.1:{closed_port()}") as cluster:

        async def main():
            async with Producer("shop", nameserver=cluster.address) as producer:
                await producer.queues("orders")
                for _ in range(2):
                    with pytest.raises(SendError, match="broker-a: "):
                        await producer.send_oneway(Message("orders", b"x"))

        run(main())


def test_a_oneway_send_waits_for_the_connection_no_longer_than_a_send_may_take(run):
    with BlackHole() as hole, Elsewhere(hole.address) as cluster:

        async def main():
            async with Producer("shop", nameserver=cluster.address, timeout_s=0.1) as producer:
                await producer.queues("orders")
                with pytest.raises(SendError, match="timed out"):
                    await producer.send_oneway(Message("orders", b"x"))

        run(main())


# ---- delays, traces, health ----------------------------------------------------------------------


def test_delays_travel_with_the_message_and_it_arrives_when_they_are_over(run, cluster, topic):
    soon = datetime.now(UTC) + timedelta(seconds=2)

    async def main():
        got = []
        consumer = PushConsumer("readers", nameserver=cluster.nameserver, start_from="first")

        @consumer.subscribe(topic)
        async def read(message):
            got.append(message)

        async with Producer("shop", nameserver=cluster.nameserver) as producer, consumer:
            await producer.send(Message(topic, b"level", delay_level=1))
            await producer.send(Message(topic, b"moment", deliver_at=soon))
            await until(lambda: len(got) == 2)
        return {message.body: message for message in got}

    got = run(main())
    level, moment = got[b"level"], got[b"moment"]
    assert level.stored_at - level.born_at >= timedelta(seconds=1)
    assert moment.stored_at >= soon - timedelta(seconds=1), "brokers count in whole seconds"


def test_a_time_is_refused_where_a_broker_would_deliver_at_once(run):
    later = Message("orders", b"x", deliver_at=datetime(2040, 1, 1, tzinfo=UTC))
    with FullCluster("orders") as cluster:
        cluster.version = version_ordinal("4.9.5")

        async def main():
            async with Producer("shop", nameserver=cluster.address) as producer:
                with pytest.raises(ConfigurationError, match="use delay_level"):
                    await producer.send(later)
                with pytest.raises(ConfigurationError, match="use delay_level"):
                    await producer.send_async(later)

        run(main())
        assert cluster.sent == []


def test_traces_are_written_in_javas_form(run):
    with FullCluster("orders", "RMQ_SYS_TRACE_TOPIC") as cluster:

        async def main():
            async with Producer("shop", nameserver=cluster.address, enable_trace=True) as producer:
                result = await producer.send(Message("orders", b"paid", tags="t", keys=["k1"]))
                async with producer.transaction(Message("orders", b"half")):
                    pass
                return result

        result = run(main())
        (trace,) = [one for one in cluster.sent if one.fields["b"] == "RMQ_SYS_TRACE_TOPIC"]
    first, half, end = (
        one.split("\x01") for one in trace.body.decode().removesuffix("\x02").split("\x02")
    )
    assert trace.fields["a"] == "_INNER_TRACE_PRODUCER-shop"
    assert (first[0], first[3:8]) == ("Pub", ["shop", "orders", result.message_id, "t", "k1"])
    assert (half[11], end[0], end[11:]) == ("1", "EndTransaction", ["COMMIT_MESSAGE", "false"])


@pytest.mark.parametrize("rules", ["5.x", "4.x"])
def test_a_producer_keeps_away_from_a_slow_broker(run, cluster, topic, rules):
    # Far above what the other one takes on a busy machine.
    tolerance = FaultTolerance(rules=rules, latency_s=(1.0,), isolate_s=(600.0,))
    slow = cluster.brokers[1]

    async def main(relay):
        options = {"address_map": {slow.address: relay.address}, "timeout_s": 30.0}
        async with Producer(
            "shop", nameserver=cluster.nameserver, fault_tolerance=tolerance, **options
        ) as producer:

            async def send():
                return (await producer.send(Message(topic, b"x"))).queue.broker

            assert {await send() for _ in range(4)} == {"broker-a", "broker-b"}
            relay.delay_s = 1.1
            while await send() != slow.name:
                pass
            assert producer.brokers()[slow.name].aside_s > 500.0
            assert [await send() for _ in range(8)] == ["broker-a"] * 8

    with Relay(slow.address) as relay:
        run(main(relay))


# ---- transactions --------------------------------------------------------------------------------


def paid(received):
    return received.body == b"paid"


async def paid_says_the_database(received):
    await asyncio.sleep(0)
    return paid(received)


@pytest.mark.rule("W2.3e", "W5.7b")
@pytest.mark.parametrize(
    ("check", "body", "state"),
    [
        (paid, b"paid", "8"),
        (paid, b"open", "12"),
        (paid_says_the_database, b"paid", "8"),
        (paid_says_the_database, b"open", "12"),
        (lambda _: None, b"paid", "0"),
        (lambda _: 1 // 0, b"paid", "0"),
        (exits, b"paid", "0"),
    ],
    ids=["commit", "roll back", "coroutine", "coroutine, roll back", "unknown", "raises", "exits"],
)
def test_the_brokers_question_is_answered_by_check(run, check, body, state):
    asked = []
    on_the_loop = check is paid_says_the_database

    def noted(received):
        asked.append((received.topic, threading.current_thread()))
        return check(received)

    async def noted_on_the_loop(received):
        asked.append((received.topic, threading.current_thread()))
        return await check(received)

    with FullCluster("orders") as cluster:

        async def main():
            async with Producer(
                "shop",
                nameserver=cluster.address,
                check=noted_on_the_loop if on_the_loop else noted,
            ) as producer:
                await producer.send(Message("orders", b"x"))
                await until(lambda: RequestCode.HEART_BEAT in cluster.codes)
                cluster.push(question(body=body))
                await until(lambda: cluster.ends)

        run(main())
        (end,) = cluster.ends
    ((topic, thread),) = asked
    assert topic == "orders"
    assert (thread is threading.current_thread()) == on_the_loop, "a plain function may wait"
    assert end.fields["commitOrRollback"] == state
    assert (end.fields["tranStateTableOffset"], end.fields["commitLogOffset"]) == ("11", "2048")


def test_a_transaction_commits_and_an_exception_rolls_back(run, cluster, topic):
    async def main():
        async with Producer("shop-tx", nameserver=cluster.nameserver) as producer:
            async with producer.transaction(Message(topic, b"committed")) as transaction:
                assert transaction.message_id
            with pytest.raises(ValueError, match="no"):
                async with producer.transaction(Message(topic, b"rolled back")):
                    raise ValueError("no")
            async with producer.transaction(Message(topic, b"given up")) as transaction:
                transaction.rollback()

    run(main())
    assert flat(stored(cluster, topic)) == [b"committed"]


def test_states_are_told_and_options_checked_as_on_threads(run, cluster, topic):
    async def main():
        producer = Producer("shop", nameserver=cluster.nameserver)
        assert (producer.state, producer.start_error) == ("created", None)
        with pytest.raises(StateError, match="is created, not running: use it in an async with"):
            await producer.send(Message(topic, b"x"))
        async with producer:
            assert producer.state == "running"
            with pytest.raises(StateError, match="is running: make a new one"):
                await producer.start()
            queue = (await producer.queues(topic))[0]
            with pytest.raises(ConfigurationError, match="not both"):
                await producer.send(
                    Message(topic, b"x"), queue=queue, selector=lambda queues, _m: queues[0]
                )
        await producer.stop()  # again: harmless
        assert producer.state == "stopped"
        with pytest.raises(StateError, match="is stopped: make a new one"):
            await producer.start()
        with pytest.raises(StateError, match="is stopped, not running"):
            await producer.send(Message(topic, b"x"))

    run(main())
    with pytest.raises(ConfigurationError, match="DEFAULT_PRODUCER"):
        Producer("DEFAULT_PRODUCER", nameserver=cluster.nameserver)


def test_two_producers_of_one_client_share_their_instance(run, cluster, topic):
    async def main():
        names = {"nameserver": cluster.nameserver, "client_id": "shared"}
        async with Producer("one", **names) as one, Producer("two", **names) as two:
            assert one._running().shared is two._running().shared
            await one.send(Message(topic, b"x"))
            again = Producer("two", **names)
            with pytest.raises(StateError, match="already has a producer") as refused:
                await again.start()
            assert (again.state, again.start_error) == ("failed to start", refused.value)
            with pytest.raises(StateError, match="failed to start") as why:
                await again.start()
            assert why.value.__cause__ is refused.value
            other = Producer("three", heartbeat_broker_interval_s=7.0, **names)
            with pytest.raises(ConfigurationError, match=r"interval_s=30\.0 instead of 7\.0"):
                await other.start()

    run(main())


def test_a_producer_joins_the_instance_of_its_name_whatever_its_strategy(run, cluster, topic):
    async def main():
        names = {"nameserver": cluster.nameserver, "client_id": "till"}
        consumer = PushConsumer("readers", allocation="CAPPED_HASH", **names)
        consumer.subscribe(topic, listener=print)
        async with consumer, Producer("shop", **names) as producer:
            assert producer.client_id == consumer.client_id == "till@gmq1-CAPPED_HASH"
            assert len(shared._instances) == 1
            await producer.send(Message(topic, b"x"))

    run(main())


def test_a_stop_that_is_cancelled_leaves_nothing_behind(run):
    with HoldingCluster("orders") as holding:

        async def main():
            producer = Producer("shop", nameserver=holding.address, timeout_s=60.0)
            await producer.start()
            sending = asyncio.ensure_future(producer.send(Message("orders", b"x")))
            await until(lambda: holding.held)
            stopping = asyncio.ensure_future(producer.stop())
            await until(lambda: producer.state == "stopping")
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            assert producer.state == "stopped"
            with pytest.raises(SendError, match="this client is stopped"):
                await sending
            await producer.stop()

        run(main())
        assert holding.codes.count(RequestCode.UNREGISTER_CLIENT) == 1


def test_each_loop_has_its_own_and_another_loop_is_refused(run, cluster, topic):
    producer = Producer("shop", nameserver=cluster.nameserver)

    async def start():
        await producer.start()
        await producer.send(Message(topic, b"one"))

    async def elsewhere():
        with pytest.raises(StateError, match="belongs to the event loop it was started on"):
            await producer.send(Message(topic, b"two"))
        async with Producer("shop", nameserver=cluster.nameserver) as another:
            await another.send(Message(topic, b"three"))

    first = asyncio.new_event_loop()
    try:
        first.run_until_complete(start())
        run(elsewhere())
        first.run_until_complete(producer.stop())
    finally:
        first.close()
    assert flat(stored(cluster, topic)) == [b"one", b"three"]


def test_without_a_name_server_the_first_send_says_so(run):
    async def main():
        async with Producer("shop", nameserver="127.0.0.1:9", timeout_s=1.0) as producer:
            with pytest.raises(TransportError, match=r"cannot connect to 127\.0\.0\.1:9"):
                await producer.send(Message("orders", b"x"))

    run(main())
