"""Keys, TLS and namespaces, as they are for clients on threads."""

import asyncio

import pytest

from aio.conftest import until
from gimbalmq import Message
from gimbalmq.aio import Admin, LitePullConsumer, Producer, PullConsumer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.errors import AccessDeniedError, ConfigurationError, TransportError
from transport.certificates import client_context, server_files

KEYS = {"access_key": "keeper", "secret_key": "keeper-secret"}


async def round_trip(nameserver, **options):
    """Send, consume with every kind of consumer, and look at it all."""
    reading = {"nameserver": nameserver, **options}
    async with Admin(nameserver, **options) as admin:
        await admin.create_topic("letters", queues=2)
        async with Producer("writers", **reading) as producer:
            sent = await producer.send(Message("letters", b"hello"))
        assert sent.queue.topic == "letters"
        pushed = []
        consumer = PushConsumer("readers", start_from="first", **reading)

        @consumer.subscribe("letters")
        async def read(message):
            pushed.append((message.topic, message.body))

        async with consumer:
            await until(lambda: pushed)
            assert {queue.topic for queue in consumer.assignment()} >= {"letters"}
        async with LitePullConsumer("pollers", start_from="first", **reading) as poller:
            await poller.subscribe("letters")
            (polled,) = await poller.poll(20.0)
        async with PullConsumer("pullers", **reading) as puller:
            (pulled,) = (await puller.pull(sent.queue, 0)).messages
        assert pushed == [("letters", b"hello")]
        assert polled.topic == pulled.topic == "letters"
        assert "letters" in await admin.topics()
        assert "readers" in await admin.groups()


def test_keys_open_a_guarded_cluster_and_without_them_it_says_so(run):
    accounts = (Account(access_key="keeper", secret_key="keeper-secret", admin=True),)

    async def without(nameserver):
        async with Admin(nameserver) as admin:
            with pytest.raises(AccessDeniedError, match="key"):
                await admin.create_topic("letters")
        pushed = PushConsumer("readers", nameserver=nameserver)
        pushed.subscribe("letters", listener=print)
        polled = LitePullConsumer("readers", nameserver=nameserver)
        await polled.subscribe("letters")
        pulled = PullConsumer("readers", nameserver=nameserver)
        pulled.subscribe("letters")
        for consumer in (pushed, polled, pulled):
            with pytest.raises(AccessDeniedError, match="give access_key and secret_key"):
                await consumer.start()

    with EmbeddedCluster(accounts=accounts) as cluster:
        run(round_trip(cluster.nameserver, **KEYS))
        run(without(cluster.nameserver))


def test_tls_with_client_certificates_carries_every_kind_of_client(run):
    async def untrusted(nameserver):
        async with Admin(nameserver, tls=True, timeout_s=5.0) as admin:
            with pytest.raises(TransportError, match="certificate is not accepted"):
                await admin.topics()

    with EmbeddedCluster(tls=server_files(wants_client=True)) as cluster:
        run(round_trip(cluster.nameserver, tls=client_context(shows_client=True)))
        run(untrusted(cluster.nameserver))


def test_a_namespace_is_added_and_taken_off(run, cluster):
    run(round_trip(cluster.nameserver, namespace="shop"))

    async def outside():
        async with Admin(cluster.nameserver) as admin:
            return await admin.topics()

    assert "shop%letters" in run(outside())


def test_clients_that_share_an_id_must_reach_alike(run, cluster):
    async def main():
        names = {"nameserver": cluster.nameserver, "client_id": "one"}
        async with Producer("first", **names):
            with pytest.raises(ConfigurationError, match="other keys, TLS or address_map"):
                await Producer("second", **names, **KEYS).start()

    run(main())


def test_addresses_are_mapped(run, cluster):
    async def main():
        known = "10.255.255.1:9876"
        async with Admin(known, address_map={known: cluster.nameserver}) as admin:
            return await admin.topics()

    assert isinstance(run(main()), tuple)


def test_an_address_map_that_raises_is_named_each_time(run, cluster, topic):
    table = {cluster.nameserver: cluster.nameserver}

    async def main():
        options = {"nameserver": cluster.nameserver, "address_map": lambda address: table[address]}
        async with Producer("shop", **options) as producer:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match="address_map raised KeyError: '127"):
                    await producer.send(Message(topic, b"x"))

    run(main())


def test_two_loops_on_two_threads_do_not_meet(run, cluster):
    async def main():
        names = {"nameserver": cluster.nameserver, "client_id": "same"}

        async def other():
            async with Producer("first", **names) as producer:
                return producer._running().shared

        async with Producer("first", **names) as producer:
            there = await asyncio.to_thread(asyncio.run, other())
            return producer._running().shared is not there

    assert run(main())
