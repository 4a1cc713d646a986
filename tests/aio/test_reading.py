"""Consumers that ask for their messages, and administration, on a loop."""

import asyncio

import pytest

from aio.conftest import until
from gimbalmq import Message, Probe, metrics
from gimbalmq.aio import Admin, LitePullConsumer, Producer, PullConsumer
from gimbalmq.errors import ConfigurationError, OffsetError, StateError


async def send(cluster, topic, count):
    async with Producer("shop", nameserver=cluster.nameserver) as producer:
        return await asyncio.gather(
            *(producer.send(Message(topic, b"%d" % number, keys=["k"])) for number in range(count))
        )


async def poll_all(consumer, count):
    bodies = []
    while len(bodies) < count:
        messages = await consumer.poll(10.0)
        assert messages
        bodies += [message.body for message in messages]
    return bodies


def test_a_subscribed_poller_reads_everything_and_goes_on_where_it_was(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, 40)
        names = {"nameserver": cluster.nameserver, "start_from": "first"}
        async with LitePullConsumer(group, **names) as consumer:
            await consumer.subscribe(topic)
            first = await poll_all(consumer, 40)
            await consumer.commit()
        await send(cluster, topic, 3)
        async with LitePullConsumer(group, **names) as consumer:
            await consumer.subscribe(topic)
            return first, await poll_all(consumer, 3)

    first, second = run(main())
    assert sorted(first) == sorted(b"%d" % number for number in range(40))
    assert sorted(second) == [b"0", b"1", b"2"]


@pytest.mark.rule("B6.3b")
@pytest.mark.parametrize("how", ["raises", "leaves", "is cancelled"])
def test_what_the_last_poll_returned_comes_again_after_a_stop(run, cluster, topic, group, how):
    async def work(queue):
        async with LitePullConsumer(
            group, nameserver=cluster.nameserver, start_from="first", pull_batch_size=3
        ) as consumer:
            await consumer.assign([queue])
            assert [one.queue_offset for one in await consumer.poll(60.0)] == [0, 1, 2]
            assert [one.queue_offset for one in await consumer.poll(60.0)] == [3, 4, 5]
            if how == "raises":
                raise ValueError("no")
            if how == "is cancelled":
                asyncio.current_task().cancel()
                await asyncio.sleep(0)

    async def main():
        results = await send(cluster, topic, 24)
        queue = results[0].queue
        done = asyncio.create_task(work(queue))
        await asyncio.wait([done])
        assert (done.cancelled() or done.exception() is not None) == (how != "leaves")
        async with LitePullConsumer(group, nameserver=cluster.nameserver) as consumer:
            await consumer.assign([queue])
            assert await consumer.committed(queue) == 3
            return len(await poll_all(consumer, 3))

    assert run(main()) == 3


def test_a_running_poller_refuses_an_sql_expression_that_the_broker_refuses(
    run, cluster, topic, group
):
    more = f"{topic}-more"
    cluster.create_topic(more, queues=1)

    async def main():
        async with LitePullConsumer(group, nameserver=cluster.nameserver) as consumer:
            await consumer.subscribe(topic)
            with pytest.raises(ConfigurationError, match="amount >>> 3"):
                await consumer.subscribe(more, sql="amount >>> 3")
            await consumer.subscribe(more, sql="amount > 3")

    run(main())


def test_a_poller_over_assigned_queues_seeks_commits_and_pauses(run, cluster, topic, group):
    async def main():
        results = await send(cluster, topic, 8)
        async with LitePullConsumer(
            group, nameserver=cluster.nameserver, start_from="first", auto_commit=False
        ) as consumer:
            with pytest.raises(StateError, match="subscribe or assign first"):
                await consumer.poll(0.0)
            queue = results[0].queue
            await consumer.assign([queue])
            with pytest.raises(StateError, match="mutually exclusive"):
                await consumer.subscribe(topic)
            with pytest.raises(ConfigurationError, match="0 or more"):
                await consumer.poll(-1.0)
            assert queue in await consumer.queues(topic)
            await until(lambda: consumer.assignment() == {queue})
            assert len(await poll_all(consumer, 2)) == 2
            assert await consumer.committed(queue) in {None, 0}  # nothing of what was polled
            assert await consumer.commit() == {queue: 2}
            assert await consumer.committed(queue) == 2
            await consumer.seek(queue, 1)
            assert len(await poll_all(consumer, 1)) == 1
            with pytest.raises(OffsetError, match="outside"):
                await consumer.seek(queue, 99)
            assert await consumer.offset_at(queue, 0) == 0
            consumer.pause([queue])
            consumer.resume([queue])

    run(main())


def test_what_was_polled_on_a_loop_and_is_not_committed_is_no_reason_to_pause(
    run, cluster, topic, group
):
    async def main():
        results = await send(cluster, topic, 60)
        queue = results[0].queue
        stored = sum(result.queue == queue for result in results)
        async with LitePullConsumer(
            group,
            nameserver=cluster.nameserver,
            start_from="first",
            auto_commit=False,
            pull_batch_size=2,
            pull_threshold_for_queue=2,
        ) as consumer:
            await consumer.assign([queue])
            assert len(await poll_all(consumer, stored)) == stored > 6
            assert await consumer.commit() == {queue: stored}

    run(main())


def test_pollers_and_pullers_on_a_loop_say_how_they_are(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, 8)
        async with (
            LitePullConsumer(group, nameserver=cluster.nameserver, start_from="first") as poller,
            PullConsumer(f"{group}-audit", nameserver=cluster.nameserver) as puller,
        ):
            await poller.subscribe(topic)
            puller.subscribe(topic)
            await poll_all(poller, 8)
            assert await poller.poll(0.01) == []
            await until(lambda: poller.stats().consumed == 8)
            for consumer in (poller, puller):
                await until(lambda one=consumer: one.probe() == Probe(live=True, ready=True))
            shown = await asyncio.to_thread(metrics.text)
            assert f'gimbalmq_consumer_ready{{group="{group}"}} 1' in shown
            asked = await asyncio.to_thread(puller.from_thread, puller.probe)
            assert asked.live
        assert not poller.probe().live

    run(main())


def test_a_poll_waits_for_what_comes_and_a_cancelled_one_takes_nothing(run, cluster, topic, group):
    async def main():
        async with LitePullConsumer(
            group, nameserver=cluster.nameserver, start_from="first"
        ) as consumer:
            await consumer.subscribe(topic)
            assert await consumer.poll(0.01) == []
            waiting = asyncio.create_task(consumer.poll(30.0))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            waiting = asyncio.create_task(consumer.poll(30.0))
            await send(cluster, topic, 1)
            (message,) = await waiting
            return message.body

    assert run(main()) == b"0"


def test_a_classic_pull_consumer_pulls_commits_and_shares(run, cluster, topic, group):
    async def main():
        await send(cluster, topic, 8)
        async with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
            changes = []
            consumer.on_queues_changed(topic, lambda _topic, queues: changes.append(queues))
            await until(lambda: len(consumer.assignment(topic)) == 4)
            await until(lambda: changes)
            bodies = []
            for queue in await consumer.queues(topic):
                assert await consumer.bounds(queue) == (0, 2)
                result = await consumer.pull(queue, await consumer.committed(queue) or 0)
                bodies += [message.body for message in result.messages]
                await consumer.commit(queue, result.next_offset)
                assert await consumer.committed(queue) == 2
                assert await consumer.offset_at(queue, 0) == 0
            with pytest.raises(ConfigurationError, match="below 0"):
                await consumer.commit(queue, -1)
            return bodies

    assert len(set(run(main()))) == 8


def test_an_administrator_asks_everything(run, cluster, topic, group):
    async def main():
        results = await send(cluster, topic, 8)
        async with Admin(cluster.nameserver) as admin:
            route = await admin.create_topic(f"{topic}-new", queues=3)
            assert len(route.subscribe_queues()) == 6
            assert {topic, f"{topic}-new"} <= set(await admin.topics())
            await admin.delete_topic(f"{topic}-new")
            assert (await admin.route(topic)).topic == topic
            assert len((await admin.topic_stats(topic)).queues) == 4
            found = await admin.message(results[0].message_id, topic=topic)
            assert found.message_id == results[0].message_id
            assert len(await admin.messages(topic, "k")) == 8
            tailed = [
                message.body
                async for message in admin.tail(topic, start_from="first", follow=False)
            ]
            assert sorted(tailed) == [b"%d" % number for number in range(8)]
            async with LitePullConsumer(
                group, nameserver=cluster.nameserver, start_from="first"
            ) as consumer:
                await consumer.subscribe(topic)
                await poll_all(consumer, 8)
                await consumer.commit()
                assert group in await admin.groups()
                (member,) = await admin.members(group)
                assert member.client_id == consumer.client_id
                assert len((await admin.assignments(group))[consumer.client_id]) == 4
                assert (await admin.consume_stats(group)).queues
            offsets = await admin.offsets(group, topic)
            assert sum(one.lag for one in offsets.values()) == 0
            moved = await admin.reset(group, topic, "earliest")
            assert set(moved.values()) == {0}

    run(main())


def test_following_a_topic_sees_what_comes_and_ends_with_its_loop(run, cluster, topic):
    async def main():
        async with Admin(cluster.nameserver) as admin:
            seen = []

            async def follow():
                async for message in admin.tail(topic, start_from="first", poll_interval_s=0.01):
                    seen.append(message.body)  # noqa: PERF401 - looked at while it grows

            following = asyncio.create_task(follow())
            await send(cluster, topic, 3)
            await until(lambda: len(seen) == 3)
            following.cancel()
            await asyncio.wait([following])

    run(main())


def test_an_administrator_belongs_to_its_loop(run, cluster):
    admin = Admin(cluster.nameserver)
    first = asyncio.new_event_loop()

    async def elsewhere():
        with pytest.raises(StateError, match="belongs to the event loop"):
            await admin.topics()

    try:
        first.run_until_complete(admin.topics())
        run(elsewhere())
        first.run_until_complete(admin.close())
        first.run_until_complete(admin.close())
    finally:
        first.close()


def test_a_task_runs_for_each_held_queue_while_it_is_held(run, cluster, topic, group):
    async def main():
        got, runs, times = {}, {}, {}
        async with Producer("shop", nameserver=cluster.nameserver) as producer:
            queues = await producer.queues(topic)
            for queue in queues:
                await producer.send(Message(topic, b"x"), queue=queue)
        errors = [ValueError("not yet"), *(SystemExit(1) for _ in queues[1:])]
        async with PullConsumer(group, nameserver=cluster.nameserver) as consumer:

            async def task(queue):
                times.setdefault(queue, []).append(asyncio.get_running_loop().time())
                runs[queue] = runs.get(queue, 0) + 1
                if runs[queue] == 1:
                    raise errors.pop()
                result = await consumer.pull(queue, got.get(queue, 0))
                got[queue] = result.next_offset
                return 0.01

            consumer.schedule(topic, task)
            with pytest.raises(StateError, match="has a task already"):
                consumer.schedule(topic, task)
            await until(lambda: got == dict.fromkeys(queues, 1) and min(runs.values()) > 4)
        ended = dict(runs)
        await asyncio.sleep(0.05)
        assert runs == ended, "none runs after the stop"
        return times

    assert all(one[1] - one[0] >= 1.0 for one in run(main()).values())
