"""The life of consumers on a loop: states, and starts and stops that are cancelled."""

import asyncio

import pytest

from aio.conftest import until
from gimbalmq.aio import LitePullConsumer, PullConsumer, PushConsumer, membership
from gimbalmq.errors import StateError, TransportError
from transport.server import closed_port

KINDS = [PushConsumer, LitePullConsumer, PullConsumer]


async def consumer_of(kind, nameserver, topic, group, **options):
    consumer = kind(group, nameserver=nameserver, **options)
    if kind is PushConsumer:
        consumer.subscribe(topic, listener=print)
    elif kind is LitePullConsumer:
        await consumer.subscribe(topic)
    else:
        consumer.subscribe(topic)
    return consumer


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_says_in_which_state_it_is(run, cluster, topic, group, kind):
    async def main():
        consumer = await consumer_of(kind, cluster.nameserver, topic, group)
        assert (consumer.state, consumer.start_error) == ("created", None)
        async with consumer:
            assert consumer.state == "running"
        assert (consumer.state, consumer.start_error) == ("stopped", None)

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_why_a_start_failed_is_kept_and_told_to_whoever_comes_later(run, topic, group, kind):
    async def main():
        consumer = await consumer_of(kind, f"127.0.0.1:{closed_port()}", topic, group)
        with pytest.raises(TransportError) as failed:
            await consumer.start()
        assert consumer.state == "failed to start"
        assert consumer.start_error is failed.value
        with pytest.raises(StateError, match=r"failed to start .*no name server could") as refused:
            await consumer.start()
        assert refused.value.__cause__ is failed.value

    run(main())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["before it has joined", "just when it has joined"])
def test_a_cancelled_start_leaves_no_member_behind(
    run, cluster, topic, group, kind, when, monkeypatch
):
    begin = membership.Joining.begin

    def cancel_too(self):
        task, settled = asyncio.current_task(), self._settled

        def settled_and_cancelled(error):
            settled(error)
            task.cancel()

        if when == "just when it has joined":
            self._settled = settled_and_cancelled
        else:
            asyncio.get_running_loop().call_soon(task.cancel)
        begin(self)

    async def main():
        # Another consumer of the client keeps the instance running.
        async with PullConsumer(
            f"{group}-audit", nameserver=cluster.nameserver, client_id="till"
        ) as other:
            other.subscribe(topic)
            consumer = await consumer_of(kind, cluster.nameserver, topic, group, client_id="till")
            with monkeypatch.context() as patch:
                patch.setattr(membership.Joining, "begin", cancel_too)
                start = asyncio.create_task(consumer.start())
                await asyncio.wait([start])
            assert start.cancelled()
            assert consumer.state == "failed to start"
            members = other._membership.instance._members
            await until(lambda: set(members) == {f"{group}-audit"})
            again = await consumer_of(kind, cluster.nameserver, topic, group, client_id="till")
            async with again:
                assert again.state == "running"

    run(main())


def test_a_start_that_is_refused_after_it_was_cancelled_leaves_the_others_member_alone(
    run, cluster, topic, group
):
    async def main():
        names = cluster.nameserver, topic, group
        async with await consumer_of(PushConsumer, *names, client_id="till") as first:
            second = await consumer_of(PushConsumer, *names, client_id="till")
            start = asyncio.create_task(second.start())
            await asyncio.sleep(0)
            start.cancel()
            await asyncio.wait([start])
            await until(first.assignment)
            assert set(first._membership.instance._members) == {group}

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_that_was_cancelled_is_finished_by_the_next_one(run, cluster, topic, group, kind):
    async def main():
        consumer = await consumer_of(kind, cluster.nameserver, topic, group)
        await consumer.start()
        stop = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        assert consumer.state == "stopping"
        stop.cancel()
        await asyncio.wait([stop])
        assert stop.cancelled()
        await consumer.stop()
        assert consumer.state == "stopped"

    run(main())
