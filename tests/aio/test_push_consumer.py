import asyncio
import os
import signal
import threading

import pytest

import gimbalmq
from aio.conftest import until
from gimbalmq import Commit, DeadLetter, Message, RetryLater, Rollback, Suspend
from gimbalmq.aio import Admin, Producer, PullConsumer, PushConsumer
from gimbalmq.client.events import read_log, read_topic
from gimbalmq.errors import ConfigurationError, StateError


async def send(cluster, topic, bodies, **options):
    async with Producer("shop", nameserver=cluster.nameserver) as producer:
        queue = (await producer.queues(topic))[0]
        for body in bodies:
            await producer.send(Message(topic, body, **options), queue=queue)
    return queue


def consumer_of(cluster, group, **options):
    return PushConsumer(group, nameserver=cluster.nameserver, start_from="first", **options)


def test_coroutine_listeners_run_together_and_offsets_are_stored(run, cluster, topic, group):
    async def main():
        queue = await send(cluster, topic, [b"%d" % number for number in range(20)])
        consumer = consumer_of(cluster, group, workers=20)
        # One after the other, nobody would get past it: all are of one queue.
        together, bodies = asyncio.Barrier(20), set()

        @consumer.subscribe(topic)
        async def listen(message):
            await together.wait()
            bodies.add(message.body)

        async with consumer:
            await until(lambda: len(bodies) == 20)
        async with Admin(cluster.nameserver) as admin:
            return (await admin.offsets(group, topic))[queue].committed

    assert run(main()) == 20


def test_workers_bound_how_many_run_at_once(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"] * 12)
        consumer = consumer_of(cluster, group, workers=3)
        running, most, done, together = 0, 0, 0, asyncio.Barrier(3)

        @consumer.subscribe(topic)
        async def listen(_message):
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await together.wait()
            await asyncio.sleep(0.01)  # a fourth would have time to begin
            running -= 1
            done += 1

        async with consumer:
            await until(lambda: done == 12)
        return most

    assert run(main()) == 3


def test_plain_functions_run_on_threads_and_do_not_hold_up_the_loop(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"] * 3)
        consumer = consumer_of(cluster, group)
        names, free = set(), threading.Event()

        @consumer.subscribe(topic)
        def listen(_message):
            names.add(threading.current_thread().name)
            assert free.wait(10)

        async with consumer:
            await until(lambda: names)  # the loop goes on while listeners wait
            free.set()
            await until(lambda: not consumer._pool.running())
        return names

    assert all(name.startswith("gimbalmq-") for name in run(main()))


def test_retry_later_delivers_again_and_dead_letter_gives_up(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"again", b"dead", b"fine"])
        consumer = consumer_of(cluster, group)
        seen = []

        @consumer.subscribe(topic)
        async def listen(message):
            seen.append((message.body, message.reconsume_times))
            if message.body == b"again" and not message.reconsume_times:
                raise RetryLater(delay_level=1)
            if message.body == b"dead":
                raise DeadLetter

        async with consumer:
            await until(lambda: (b"again", 1) in seen)
        async with Admin(cluster.nameserver) as admin:
            topics = await admin.topics(internal=True)
        return seen, topics

    seen, topics = run(main())
    assert sorted(seen) == [(b"again", 0), (b"again", 1), (b"dead", 0), (b"fine", 0)]
    assert f"%DLQ%{group}" in topics


def test_batches_go_to_the_listener_as_lists(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"%d" % number for number in range(10)])
        consumer = consumer_of(cluster, group, batch_size=4)
        sizes, retried = [], []

        @consumer.subscribe(topic)
        async def listen(messages):
            again = [one for one in messages if one.reconsume_times]
            retried.extend(one.body for one in again)
            sizes.append(len(messages))
            named = [one for one in messages if one.body == b"3" and not one.reconsume_times]
            if named:
                raise RetryLater(messages=named, delay_level=1)

        async with consumer:
            await until(lambda: retried)
        return sizes, retried

    sizes, retried = run(main())
    assert max(sizes) <= 4
    assert sum(sizes) == 11
    assert retried == [b"3"]


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_an_ordered_queue_waits_for_the_message_that_failed(run, cluster, topic, group, kind):
    async def main():
        await send(cluster, topic, [b"0", b"1", b"2", b"3"])
        consumer = consumer_of(cluster, group, ordered=True, suspend_current_queue_time_s=0.05)
        seen = []

        def listen(message):
            seen.append(message.body)
            if message.body == b"1" and seen.count(b"1") < 3:
                raise Suspend(0.02) if seen.count(b"1") == 1 else ValueError("not yet")

        async def listen_async(message):
            await asyncio.sleep(0.001)
            listen(message)

        consumer.subscribe(topic, listener=listen if kind == "function" else listen_async)
        async with consumer:
            await until(lambda: b"3" in seen)
        return seen

    assert run(main()) == [b"0", b"1", b"1", b"1", b"2", b"3"]


def test_commit_and_rollback_of_an_ordered_queue(run, cluster, topic, group):
    async def main():
        queue = await send(cluster, topic, [b"0", b"1", b"2"])
        consumer = consumer_of(
            cluster, group, ordered=True, auto_commit=False, suspend_current_queue_time_s=0.05
        )
        seen = []

        @consumer.subscribe(topic)
        async def listen(message):
            seen.append(message.body)
            if message.body == b"2":
                return Rollback if seen.count(b"2") == 1 else Commit
            return None

        async with consumer:
            await until(lambda: seen.count(b"2") == 2)
        async with Admin(cluster.nameserver) as admin:
            return seen, (await admin.offsets(group, topic))[queue].committed

    seen, committed = run(main())
    assert seen == [b"0", b"1", b"2", b"0", b"1", b"2"]
    assert committed == 3


def test_two_members_share_the_queues_also_with_one_on_threads(run, cluster, topic, group):
    async def main():
        consumer = consumer_of(cluster, group)
        reports = []

        @consumer.subscribe(topic)
        async def listen(_message):
            pass

        @consumer.on_rebalance
        async def told(report):
            await asyncio.sleep(0)
            reports.append(report)

        def mine():
            return {queue for queue in consumer.assignment() if queue.topic == topic}

        def theirs():
            return {queue for queue in other.assignment() if queue.topic == topic}

        other = gimbalmq.PushConsumer(group, nameserver=cluster.nameserver)
        other.subscribe(topic, listener=lambda _message: None)
        async with consumer:
            await until(lambda: len(mine()) == 4)
            await asyncio.to_thread(other.start)
            try:
                await until(lambda: len(mine()) == len(theirs()) == 2 and not theirs() & mine())
            finally:
                await asyncio.to_thread(other.stop)
            await until(lambda: len(mine()) == 4)
        return reports

    assert [report.topic for report in run(main())].count(topic) >= 2


def test_a_lease_hands_over_without_a_duplicate(run, cluster, topic, group):
    async def main():
        seen = []

        def member():
            consumer = consumer_of(cluster, group, lease=True)

            @consumer.subscribe(topic)
            async def listen(message):
                await asyncio.sleep(0.005)
                seen.append(message.body)

            return consumer

        async def produce():
            async with Producer("shop", nameserver=cluster.nameserver) as producer:
                for number in range(150):
                    await producer.send(Message(topic, b"%03d" % number))

        async with member():
            producing = asyncio.create_task(produce())
            await until(lambda: len(seen) > 20)
            async with member():
                await producing
                await until(lambda: len(set(seen)) == 150, 30)
        return seen

    seen = run(main(), 60)
    assert sorted(seen) == [b"%03d" % number for number in range(150)]


def test_every_broadcasting_member_gets_everything(run, cluster, topic, group, tmp_path):
    async def main():
        seen = {"a": [], "b": []}

        def member(name):
            consumer = consumer_of(
                cluster, group, broadcasting=True, client_id=name, local_offset_store_dir=tmp_path
            )

            @consumer.subscribe(topic)
            async def listen(message):
                seen[name].append(message.body)

            return consumer

        await send(cluster, topic, [b"one", b"two"])
        async with member("a"), member("b"):
            await until(lambda: all(len(found) == 2 for found in seen.values()))
        await send(cluster, topic, [b"three"])
        async with member("a"):
            await until(lambda: len(seen["a"]) == 3)
        return seen

    seen = run(main())
    assert seen["a"] == [b"one", b"two", b"three"]


def test_paused_queues_wait_until_they_are_resumed(run, cluster, topic, group):
    async def main():
        consumer = consumer_of(cluster, group)
        seen = []

        @consumer.subscribe(topic)
        async def listen(message):
            seen.append(message.body)

        async with consumer:
            await until(lambda: len(consumer.assignment()) >= 4)
            consumer.pause()
            await send(cluster, topic, [b"x"])
            await send(cluster, topic, [b"y"])
            # A pull that was under way may still bring something; nothing follows it.
            before = len(seen)
            consumer.resume()
            await until(lambda: len(seen) == 2)
            return before

    assert run(main()) <= 2


def test_stopping_lets_listeners_finish_and_cancels_those_that_take_too_long(
    run, cluster, topic, group
):
    async def main(pause_s, drain_s):
        await send(cluster, topic, [b"x"])
        consumer = consumer_of(cluster, group)
        outcome = []

        @consumer.subscribe(topic)
        async def listen(_message):
            outcome.append("started")
            try:
                await asyncio.sleep(pause_s)
                outcome.append("finished")
            except asyncio.CancelledError:
                outcome.append("cancelled")
                raise

        await consumer.start()
        await until(lambda: outcome)
        await consumer.stop(drain_s)
        return outcome

    assert run(main(0.2, 5.0)) == ["started", "finished"]
    assert run(main(60.0, 0.1)) == ["started", "cancelled"]


def test_a_listener_whose_own_work_was_cancelled_gets_its_message_again(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"])
        consumer = consumer_of(cluster, group, ordered=True, suspend_current_queue_time_s=0.02)
        calls = 0

        @consumer.subscribe(topic)
        async def listen(_message):
            nonlocal calls
            calls += 1
            if calls == 1:
                work = asyncio.ensure_future(asyncio.sleep(60))
                work.cancel()
                await work

        async with consumer:
            await until(lambda: calls == 2)

    run(main())


def test_hooks_surround_coroutines_and_a_hung_one_raises_the_alarm(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"])
        consumer = consumer_of(cluster, group, hung_listener_s=0.1)
        told, hung, free = [], [], asyncio.Event()
        consumer.before(lambda message: told.append(("before", message.body)))
        consumer.after(lambda message, error, _took_s: told.append(("after", error)))

        @consumer.on_hung
        async def alarm(found):
            hung.append(found)

        @consumer.subscribe(topic)
        async def listen(_message):
            await free.wait()

        async with consumer:
            await until(lambda: hung)
            assert consumer.stats().group == group
            assert consumer.probe().live
            free.set()
            await until(lambda: len(told) == 2)
        return told, hung

    told, hung = run(main())
    assert told == [("before", b"x"), ("after", None)]
    assert "await free.wait()" in hung[0].stack


def test_traces_of_coroutines_are_written(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"])
        trace_topic = f"trace-{group}"
        async with Admin(cluster.nameserver) as admin:
            await admin.create_topic(trace_topic, queues=1)
            consumer = consumer_of(cluster, group, enable_trace=True, trace_topic=trace_topic)
            seen = []

            @consumer.subscribe(topic)
            async def listen(message):
                seen.append(message.message_id)

            async with consumer:
                await until(lambda: seen)
            records = [
                message.body
                async for message in admin.tail(trace_topic, start_from="first", follow=False)
            ]
        return seen, b"".join(records)

    seen, records = run(main())
    assert records.startswith(b"SubBefore")
    assert b"SubAfter" in records
    assert seen[0].encode() in records


def test_the_trace_of_a_coroutine_that_is_cancelled_has_an_end(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"])
        trace_topic, listening = f"trace-{group}", asyncio.Event()
        async with Admin(cluster.nameserver) as admin:
            await admin.create_topic(trace_topic, queues=1)
            consumer = consumer_of(cluster, group, enable_trace=True, trace_topic=trace_topic)

            @consumer.subscribe(topic)
            async def listen(_message):
                listening.set()
                await asyncio.Event().wait()  # for ever

            await consumer.start()
            await asyncio.wait_for(listening.wait(), 30.0)
            await consumer.stop(drain_s=0.1)
            return b"".join(
                [
                    message.body
                    async for message in admin.tail(trace_topic, start_from="first", follow=False)
                ]
            )

    assert b"SubAfter" in run(main())


def test_run_ends_with_a_signal(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, [b"x"])
        consumer = consumer_of(cluster, group)
        seen = []

        @consumer.subscribe(topic)
        async def listen(message):
            seen.append(message.body)
            os.kill(os.getpid(), signal.SIGTERM)

        await consumer.run()
        return seen

    assert run(main()) == [b"x"]


def test_states_are_told(run, cluster, topic, group):
    async def main():
        consumer = consumer_of(cluster, group)
        with pytest.raises(StateError, match="subscribes to nothing"):
            await consumer.start()

        @consumer.subscribe(topic)
        async def listen(_message):
            pass

        with pytest.raises(StateError, match="not running"):
            consumer.assignment()
        assert not consumer.probe().live
        async with consumer:
            with pytest.raises(StateError, match="make a new one"):
                await consumer.start()
            again = consumer_of(cluster, group, client_id=None)
            again.client_id = consumer.client_id
        await consumer.stop()
        with pytest.raises(StateError, match="is stopped"):
            consumer.pause()

    run(main())


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_an_sql_expression_is_read_by_brokers_before_a_running_consumer_subscribes_to_it(
    run, cluster, topic, group, kind
):
    more = f"{topic}-more"
    cluster.create_topic(more, queues=1)
    listening = {"listener": print} if kind is PushConsumer else {}

    async def main():
        consumer = kind(group, nameserver=cluster.nameserver)
        consumer.subscribe(topic, **listening)
        async with consumer:
            with pytest.raises(
                ConfigurationError, match="refuses the SQL expression 'amount >>> 3'"
            ):
                await consumer.check_sql(more, "amount >>> 3")
            for sql in ("amount >>> 3", "amount > 3"):
                with pytest.raises(StateError, match=r"await check_sql\(topic, sql\) first"):
                    consumer.subscribe(more, sql=sql, **listening)
            assert set(topics(consumer)) == {topic}
            await consumer.check_sql(more, "amount > 3")
            consumer.subscribe(more, sql="amount > 3", **listening)
            assert set(topics(consumer)) == {topic, more}

    def topics(consumer):
        known = consumer._membership.ask(lambda host: tuple(host.topics()))
        return [one for one in known if not one.startswith("%RETRY%")]

    run(main())


def test_a_cancelled_start_leaves_nothing_behind(run, topic, group):
    async def main():
        consumer = PushConsumer(group, nameserver="127.0.0.1:9")
        consumer.subscribe(topic, listener=print)
        start = asyncio.create_task(consumer.start())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises((asyncio.CancelledError, gimbalmq.errors.TransportError)):
            await start

    run(main())


def test_rebalances_are_kept_in_a_file_or_sent_to_a_topic(run, cluster, topic, group, tmp_path):
    log = tmp_path / "events.jsonl"

    async def main():
        async with Admin(cluster.nameserver) as admin:
            await admin.create_topic("history", queues=1)
        for events in (log, "history"):
            consumer = PushConsumer(group, nameserver=cluster.nameserver, events=events)
            consumer.subscribe(topic, listener=print)
            async with consumer:
                await until(
                    # Those of the retry topic may come first.
                    lambda one=consumer: any(queue.topic == topic for queue in one.assignment())
                )
        return consumer.client_id

    member = run(main())

    def about(event):
        return any(queue.startswith(f"{topic}/") for queue in event.acquired)

    assert len([one for one in read_log(log, group) if about(one)]) == 1
    with gimbalmq.Admin(cluster.nameserver) as admin:
        sent = [one for one in read_topic(admin, group, "history") if about(one)]
    assert [one.client_id for one in sent] == [member]
