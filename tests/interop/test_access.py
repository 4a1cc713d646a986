"""Keys and TLS: one guarded cluster for all, beside the open one."""

from functools import partial

import pytest

from client.reaching import consume, round_trip
from gimbalmq import Admin, Message, Producer, PushConsumer
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.errors import AccessDeniedError, TransportError
from gimbalmq.testing import ApacheRocketMQ
from transport.certificates import client_context, server_files, trusting_context

KEYS = {"access_key": "rocketmq", "secret_key": "12345678"}


@pytest.fixture(scope="module")
def guarded(rocketmq_engine, rocketmq_version):
    """Asks for keys, and of those who speak TLS for a certificate."""
    options = {"accounts": [Account(**KEYS, admin=True)], "tls": server_files(wants_client=True)}
    real = rocketmq_engine == "apache"
    make = (
        partial(ApacheRocketMQ, rocketmq_version)
        if real
        else partial(EmbeddedCluster, processes=True)
    )
    with make(**options) as cluster:
        yield cluster


@pytest.mark.matrix
@pytest.mark.rule("W5.8a", "W1.7a")
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "mutual-tls"])
def test_right_keys_and_certificates_open_the_cluster(guarded, topic_name, group_name, encrypted):
    guarded.create_topic(topic_name, queues=2)
    tls = client_context(shows_client=True) if encrypted else False
    round_trip(guarded.nameserver, topic_name, group_name, tls=tls, **KEYS)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "give access_key and secret_key"),
        ({"access_key": "nobody", "secret_key": "12345678"}, "no user with access key 'nobody'"),
        ({"access_key": "rocketmq", "secret_key": "other-secret"}, "check secret_key"),
    ],
    ids=["none", "unknown", "wrong"],
)
def test_wrong_keys_are_refused_in_words(guarded, topic_name, group_name, caplog, keys, words):
    guarded.create_topic(topic_name, queues=1)
    with (
        Producer("p", nameserver=guarded.nameserver, timeout_s=10.0, **keys) as producer,
        pytest.raises(AccessDeniedError, match=words),
    ):
        producer.send(Message(topic_name, b"x"))
    with (
        Admin(guarded.nameserver, **keys) as admin,
        pytest.raises(AccessDeniedError, match=words),
    ):
        admin.create_topic(topic_name, queues=2)
    consumer = PushConsumer(group_name, nameserver=guarded.nameserver, **keys)
    consumer.subscribe(topic_name, listener=print)
    with pytest.raises(AccessDeniedError, match=words):
        consumer.start()
    assert "other-secret" not in caplog.text


@pytest.mark.matrix
@pytest.mark.rule("W1.7a")
def test_a_client_without_certificate_is_refused_in_words(guarded):
    with (
        Admin(guarded.nameserver, tls=client_context(), **KEYS) as admin,
        pytest.raises(TransportError, match="certificate"),
    ):
        admin.topics()


@pytest.mark.rule("W1.7a")
def test_tls_works_out_of_the_box_for_those_who_trust_it(apache, topic, group_name):
    round_trip(apache.nameserver, topic, group_name, tls=trusting_context())
    with (
        Admin(apache.nameserver, tls=True) as admin,
        pytest.raises(TransportError, match="RocketMQ's built-in certificate"),
    ):
        admin.topics()


@pytest.mark.rule("W5.9")
def test_a_java_member_and_ours_share_a_namespace(rocketmq, java_peer, unique_name):
    name, topic, group = "shop", unique_name("topic"), unique_name("group")
    rocketmq.create_topic(f"{name}%{topic}", queues=2)
    java = java_peer.push_consumer(group, topic, namespace=name)
    with Producer("p", nameserver=rocketmq.nameserver, namespace=name, timeout_s=10.0) as producer:
        producer.send(Message(topic, b"for java"))
    (received, *_) = java.wait_received(1)
    assert received.topic == topic
    java_peer.producer(group, namespace=name).send(Message(topic, b"from java"))
    got = consume(rocketmq.nameserver, f"{group}-ours", topic, 2, namespace=name)
    assert {message.body for message in got} == {b"for java", b"from java"}
    assert {message.topic for message in got} == {topic}
