"""Plain messages under way as frames: gathered, written by whoever comes first, none forgotten."""

import threading

import msgspec
import pytest

from client.small_cluster import SmallCluster
from gimbalmq import Message, Producer
from gimbalmq.client import frames, targets
from gimbalmq.errors import ConfigurationError


@pytest.fixture
def cluster():
    with SmallCluster("orders", "bills", queues=4) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster):
    with Producer(
        "shop",
        nameserver=cluster.address,
        max_message_size=32 << 20,
        compress_msg_body_over_howmuch=32 << 20,
    ) as producer:
        # Frames need a connection that is open.
        producer.send_async(Message("orders", b"first")).result(10.0)
        yield producer


@pytest.fixture
def offers(producer, monkeypatch):
    """How many frames left at a time, and on which thread."""
    engine, seen = producer._sender.shared.engine, []
    offer = engine.offer

    def counted(address, offered, together):
        seen.append((len(offered.answered), threading.current_thread() is threading.main_thread()))
        return offer(address, offered, together)

    monkeypatch.setattr(engine, "offer", counted)
    return seen


@pytest.mark.parametrize("count", [1, 31, 32, 33, 200])
def test_every_message_leaves_though_nobody_comes_again(producer, count):
    futures = [producer.send_async(Message("orders", b"x")) for _ in range(count)]
    results = [future.result(10.0) for future in futures]
    assert len({result.message_id for result in results}) == count


def test_a_caller_writes_what_has_gathered_in_one_go(producer, offers, monkeypatch):
    # The engine thread would come by in between, sooner or later.
    monkeypatch.setattr(producer._sender._frames, "_scheduled", True)
    for _ in range(2 * frames._FRAMES_PER_WRITE + 1):
        producer.send_async(Message("orders", b"x"))
    assert offers == [(frames._FRAMES_PER_WRITE, True)] * 2
    producer.flush(10.0)
    assert offers[2:] == [(1, True)]


def test_what_gathers_while_frames_are_written_is_left_to_the_next_who_writes(
    producer, offers, monkeypatch
):
    """Else one caller, or the engine thread, would write for all others as long as they send."""
    gathering = producer._sender._frames
    monkeypatch.setattr(gathering, "_scheduled", True)
    engine, offer, later = producer._sender.shared.engine, producer._sender.shared.engine.offer, []

    def send_meanwhile(address, offered, together):
        if len(later) < 3:
            later.append(producer.send_async(Message("orders", b"later")))
        return offer(address, offered, together)

    monkeypatch.setattr(engine, "offer", send_meanwhile)
    first = producer.send_async(Message("orders", b"x"))
    gathering.write()
    assert (len(offers), len(later), len(gathering._gathered)) == (1, 1, 1)
    gathering.write()
    gathering.write()
    producer.flush(10.0)
    assert all(future.result(10.0) for future in (first, *later))


def test_more_than_fits_into_one_go_leaves_in_several(producer, offers, monkeypatch):
    monkeypatch.setattr(producer._sender._frames, "_scheduled", True)
    monkeypatch.setattr(frames, "_FRAMES_AT_ONCE", 3)
    futures = [producer.send_async(Message("orders", b"x")) for _ in range(7)]
    producer.flush(10.0)
    assert [count for count, _ in offers] == [3, 3, 1]
    assert len({future.result(0).message_id for future in futures}) == 7


def test_a_caller_that_waits_for_room_lets_its_own_messages_leave_first(cluster, monkeypatch):
    with Producer(
        "shop", nameserver=cluster.address, back_pressure_for_async_send_num=4
    ) as producer:
        producer.send_async(Message("orders", b"first")).result(10.0)
        monkeypatch.setattr(producer._sender._frames, "_scheduled", True)
        futures = [producer.send_async(Message("orders", b"x"), timeout_s=10.0) for _ in range(5)]
        assert all(future.result(10.0) for future in futures[:4])
        producer.flush(10.0)


def test_messages_of_several_threads_are_stored_once_each(cluster, producer):
    def send(number):
        for i in range(100):
            producer.send_async(Message("bills", f"{number}-{i}".encode()))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    producer.flush(10.0)
    bodies = [bytes(request.body) for request in cluster.sent if request.fields["b"] == "bills"]
    assert sorted(bodies) == sorted(f"{n}-{i}".encode() for n in range(4) for i in range(100))


def test_a_frame_above_the_protocols_limit_fails_alone_and_gives_its_room_back(
    producer, monkeypatch
):
    monkeypatch.setattr(producer._sender._frames, "_scheduled", True)
    large = producer.send_async(Message("orders", bytes(17 << 20)))
    small = producer.send_async(Message("orders", b"x"))
    producer.flush(10.0)
    assert small.result(0).queue.topic == "orders"
    with pytest.raises(ConfigurationError, match="above the protocol's limit"):
        large.result(0)
    assert producer._sender.pipeline.in_flight == (0, 0)


@pytest.mark.timeout(30)
def test_a_callback_of_a_message_that_cannot_leave_may_send_again(producer, monkeypatch):
    monkeypatch.setattr(producer._sender._frames, "_scheduled", True)
    sent = []

    def send_again(_failed):
        # Enough to be written here and now.
        sent.extend(
            producer.send_async(Message("orders", b"x")) for _ in range(frames._FRAMES_PER_WRITE)
        )

    large = producer.send_async(Message("orders", bytes(17 << 20)))
    large.add_done_callback(send_again)
    producer.flush(10.0)
    assert [future.result(10.0).queue.topic for future in sent] == ["orders"] * len(sent) != []


def test_the_targets_of_topics_that_are_gone_do_not_pile_up(producer, monkeypatch):
    monkeypatch.setattr(targets, "_TOPICS_MAX", 1)
    known = producer._sender.targets
    for topic, other in (("orders", "bills"), ("bills", "orders"), ("orders", "bills")):
        assert producer.send_async(Message(topic, b"x")).result(10.0).queue.topic == topic
        assert topic in known
        assert other not in known


def test_a_route_that_changed_counts_for_the_next_message(producer):
    sender = producer._sender
    gathering, before = sender._frames, sender.info("orders")
    changed = msgspec.structs.replace(before, queues=before.queues[:1])
    results = [gathering.send(Message("orders", b"x"), changed, 10.0) for _ in range(5)]
    assert {future.result(10.0).queue for future in results} == {before.queues[0]}
    assert len(sender.targets.of(before)) == 4


def test_messages_with_different_limits_leave_with_their_own(producer, offers, monkeypatch):
    monkeypatch.setattr(producer._sender._frames, "_scheduled", True)
    futures = [
        producer.send_async(Message("orders", b"x"), timeout_s=limit_s)
        for limit_s in (5.0, 6.0, 6.0, 5.0)
    ]
    producer.flush(10.0)
    assert [count for count, _ in offers] == [1, 2, 1]
    assert all(future.result(0) for future in futures)
