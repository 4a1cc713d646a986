"""The asyncio client on a real broker, beside a Java member."""

import asyncio

import pytest

from gimbalmq import Message
from gimbalmq.aio import Admin, LitePullConsumer, Producer, PushConsumer

pytestmark = pytest.mark.timeout(150, func_only=True)


async def until(condition, timeout_s=60.0):
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.02)


def test_sent_and_consumed_by_coroutines_in_order_and_by_polling(rocketmq, topic, unique_name):
    async def main():
        names = {"nameserver": rocketmq.nameserver}
        async with Producer(unique_name("shop"), **names) as producer:
            results = await asyncio.gather(
                *(producer.send(Message(topic, b"%d" % number)) for number in range(100))
            )
            for number in range(100, 120):
                await producer.send(Message(topic, b"%d" % number, sharding_key="one"))
        assert len({result.message_id for result in results}) == 100

        concurrent, ordered = [], []
        first = PushConsumer(unique_name("concurrent"), start_from="first", **names)
        second = PushConsumer(unique_name("ordered"), start_from="first", ordered=True, **names)

        @first.subscribe(topic)
        async def take(message):
            await asyncio.sleep(0)
            concurrent.append(int(message.body))

        @second.subscribe(topic)
        async def take_in_order(message):
            await asyncio.sleep(0)
            ordered.append(int(message.body))

        async with first, second:
            await until(lambda: len(concurrent) >= 120 and len(ordered) >= 120)
        assert sorted(set(concurrent)) == list(range(120))
        assert [number for number in ordered if number >= 100] == list(range(100, 120))

        polled = []
        group = unique_name("polling")
        async with LitePullConsumer(group, start_from="first", **names) as poller:
            await poller.subscribe(topic)
            while len(polled) < 120:
                messages = await poller.poll(20.0)
                assert messages
                polled += [int(message.body) for message in messages]
            await poller.commit()
        async with Admin(rocketmq.nameserver) as admin:
            offsets = await admin.offsets(group, topic)
        assert sorted(polled) == list(range(120))
        assert sum(offset.lag for offset in offsets.values()) == 0

    asyncio.run(main())


def test_a_java_member_and_a_coroutine_member_share_a_group(rocketmq, java_peer, topic, group_name):
    async def main():
        consumer = PushConsumer(group_name, nameserver=rocketmq.nameserver, start_from="first")
        ours = []

        @consumer.subscribe(topic)
        async def take(message):
            ours.append(message.keys[0])

        def mine():
            return {queue for queue in consumer.assignment() if queue.topic == topic}

        async with Producer("mixed-aio", nameserver=rocketmq.nameserver) as producer:
            everything = set(await producer.queues(topic))
            async with consumer:
                await until(lambda: mine() == everything)
                java = await asyncio.to_thread(java_peer.push_consumer, group_name, topic)
                try:
                    await until(lambda: 0 < len(mine()) < len(everything))
                    for number in range(60):
                        await producer.send(Message(topic, b"x", keys=[str(number)]))

                    def all_received():
                        theirs = [message.keys for message in java.received()]
                        return {*ours, *theirs} >= {str(number) for number in range(60)}

                    await until(all_received)
                    theirs = {message.keys for message in java.received()}
                finally:
                    await asyncio.to_thread(java.stop)
                await until(lambda: mine() == everything)
        assert ours
        assert theirs

    asyncio.run(main())
