"""Groups of unmodified Java members: what the doctor sees of them, and how the guard heals them."""

import threading
import time

import pytest

from gimbalmq import Admin, Message, Producer
from gimbalmq.client.guard import GroupGuard
from interop.cutting import cut
from java_clients import LIVELY

pytestmark = pytest.mark.timeout(280, func_only=True)
QUEUES = 8


@pytest.fixture(scope="module")
def java_peer(apache):
    """A Java process on the real RocketMQ, whichever engine other tests run on."""
    with apache.java_peer(**LIVELY) as peer:
        yield peer


@pytest.fixture
def new_java_peer(apache):
    """Starts Java processes to be killed, cut off or paused; they end with the test."""
    peers = []

    def start():
        peers.append(apache.java_peer(**LIVELY))
        return peers[-1]

    yield start
    for peer in peers:
        peer.stop()


@pytest.fixture
def topic(apache, topic_name):
    apache.create_topic(topic_name, queues=QUEUES // 2)
    return topic_name


@pytest.fixture
def admin(apache):
    with Admin(apache.nameserver) as admin:
        yield admin


@pytest.fixture
def watched(admin, group_name):
    """Runs a guard beside the test; gives what it decided."""
    started = []

    def start(**options):
        deeds = []
        guard = GroupGuard(admin, group_name, interval_s=0.2, **options)
        thread = threading.Thread(target=guard.run, args=(deeds.append,), daemon=True)
        thread.start()
        started.append((guard, thread))
        return deeds

    yield start
    for guard, thread in started:
        guard.stop()
        thread.join(20.0)


def kinds(deeds):
    return [deed.kind for deed in deeds]


def own(consumer, topic):
    return {queue for queue in consumer.owned() if queue.topic == topic}


def codes(admin, group, **options):
    return [one.code for one in admin.diagnose(group, **options).findings]


@pytest.mark.matrix
@pytest.mark.rule("B8.3b", "B8.3d")
def test_an_ordered_java_group_resumes_soon_after_a_member_was_killed(
    apache, admin, java_peer, new_java_peer, watched, topic, group_name, eventually
):
    survivor = java_peer.push_consumer(group_name, topic, ordered=True)
    victim_peer = new_java_peer()
    victim = victim_peer.push_consumer(group_name, topic, ordered=True)
    eventually(lambda: len(own(survivor, topic)) == len(own(victim, topic)) == QUEUES // 2, 90.0)
    assert codes(admin, group_name, interval_s=1.0) == [], "a healthy group"
    deeds = watched(act=True)
    eventually(lambda: "watching" in kinds(deeds))
    victim_peer.kill()
    killed = time.monotonic()
    if apache.version.startswith("4"):
        # Old clients get 35 s to come back; the locks are still gone sooner than by themselves.
        eventually(lambda: "release" in kinds(deeds), 45.0)
        eventually(lambda: len(own(survivor, topic)) == QUEUES, 15.0)
        assert time.monotonic() - killed < 55.0
    else:
        eventually(lambda: "missing" in kinds(deeds))
        assert codes(admin, group_name, interval_s=0.5) == ["LOCK_HELD_BY_DEAD"]
        eventually(lambda: len(own(survivor, topic)) == QUEUES)
        assert time.monotonic() - killed < 35.0, "without help it takes 40 s and more"
    # Told when it is done, and the survivor may be quicker.
    eventually(lambda: "release" in kinds(deeds))
    released = next(deed for deed in deeds if deed.kind == "release")
    assert (released.members, released.done) == ((victim.client_id,), True)
    with Producer("after", nameserver=apache.nameserver) as producer:
        for number in range(2 * QUEUES):
            producer.send(Message(topic, b"%d" % number))
    survivor.wait_received(2 * QUEUES)
    survivor.stop()


@pytest.mark.matrix
@pytest.mark.rule("B8.3d")
def test_a_member_that_was_only_disconnected_keeps_its_locks(
    apache, java_peer, new_java_peer, watched, topic, group_name, eventually
):
    other = java_peer.push_consumer(group_name, topic, ordered=True)
    cut_peer = new_java_peer()
    member = cut_peer.push_consumer(group_name, topic, ordered=True)
    eventually(lambda: len(own(other, topic)) == len(own(member, topic)) == QUEUES // 2, 90.0)
    before = own(member, topic)
    deeds = watched(act=True)
    eventually(lambda: "watching" in kinds(deeds))
    ports = {int(broker.address.rpartition(":")[2]) for broker in apache.brokers}
    # It stands still meanwhile: it might be back before anybody has looked.
    cut_peer.pause()
    try:
        assert cut(cut_peer.pid, ports) >= 2
        eventually(lambda: "missing" in kinds(deeds))
    finally:
        cut_peer.resume()
    # An old client is back with its next heartbeat, a new one as soon as it has reconnected.
    eventually(lambda: "returned" in kinds(deeds), 45.0)
    eventually(lambda: own(member, topic) == before)
    assert not {"release", "alive"} & set(kinds(deeds))
    other.stop()


def test_a_dry_run_changes_nothing_and_a_stopped_process_is_not_gone(
    admin, java_peer, new_java_peer, watched, topic, group_name, eventually
):
    survivor = java_peer.push_consumer(group_name, topic, ordered=True)
    frozen_peer = new_java_peer()
    frozen = frozen_peer.push_consumer(group_name, topic, ordered=True)
    eventually(lambda: len(own(survivor, topic)) == len(own(frozen, topic)) == QUEUES // 2, 90.0)
    deeds = watched(act=False)
    eventually(lambda: "watching" in kinds(deeds))
    frozen_peer.pause()
    try:
        stopped = time.monotonic()
        eventually(lambda: time.monotonic() - stopped > 7.0, 20.0)
        assert kinds(deeds) == ["watching"], "brokers list a frozen member for two minutes"
    finally:
        frozen_peer.resume()
    eventually(lambda: len(own(frozen, topic)) == QUEUES // 2)
    frozen_peer.kill()
    eventually(lambda: "release" in kinds(deeds))
    assert not any(deed.done for deed in deeds)
    assert len(own(survivor, topic)) == QUEUES // 2, "the locks of the dead are still there"
    survivor.stop()


def test_the_doctor_finds_what_is_wrong_among_java_members(
    admin, java_peer, topic, group_name, eventually
):
    first = java_peer.push_consumer(group_name, topic, tags="paid")
    second = java_peer.push_consumer(group_name, topic, allocation="AVG_BY_CIRCLE")
    queues = sorted(admin.route(topic).subscribe_queues())
    half, circle = set(queues[: QUEUES // 2]), set(queues[1::2])
    # One of them gives each of the shares, whoever is listed first.
    eventually(
        lambda: (
            own(first, topic) in (half, set(queues) - half)
            and own(second, topic) in (circle, set(queues) - circle)
        ),
        90.0,
    )
    found = {one.code: one for one in admin.diagnose(group_name, interval_s=0.5).findings}
    assert found.keys() == {
        "MIXED_STRATEGIES",
        "UNEQUAL_SUBSCRIPTIONS",
        "QUEUE_UNOWNED",
        "QUEUE_DOUBLY_OWNED",
    }
    assert set(found["MIXED_STRATEGIES"].members) == {first.client_id, second.client_id}
    first.stop()
    second.stop()
