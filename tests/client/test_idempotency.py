import asyncio
import threading
from types import SimpleNamespace

import pytest

from gimbalmq import MemorySeen, PushConsumer, RetryLater, SqliteSeen, aio, idempotent
from gimbalmq.client.idempotency import Claim
from gimbalmq.core.delays import DEFAULT_DELAY_LEVELS_MS, retry_level
from gimbalmq.errors import ConfigurationError


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request, clock, tmp_path):
    if request.param == "memory":
        yield MemorySeen(100, 50.0, claim_s=10.0, clock=clock)
    else:
        with SqliteSeen(tmp_path / "seen.db", 50.0, claim_s=10.0, clock=clock) as seen:
            yield seen


def message(identity="1", topic="orders", **properties):
    known = {"UNIQ_KEY": identity, **properties}
    return SimpleNamespace(
        topic=topic, message_id=identity, property_value=known.get, body=b"", keys=("order-7",)
    )


# ---- stores --------------------------------------------------------------------------------------


def test_one_gets_the_claim_and_the_others_wait(store):
    assert store.claim("a") is Claim.GRANTED
    assert store.claim("a") is Claim.BUSY
    assert store.claim("b") is Claim.GRANTED


def test_what_is_done_stays_done_for_its_time(store, clock):
    store.claim("a")
    store.done("a")
    clock.now += 49.0
    assert store.claim("a") is Claim.DONE
    clock.now += 2.0
    assert store.claim("a") is Claim.GRANTED


def test_what_is_forgotten_can_be_claimed_again(store):
    store.claim("a")
    store.forget("a")
    assert store.claim("a") is Claim.GRANTED


def test_the_claim_of_one_who_died_ends_by_itself(store, clock):
    store.claim("a")
    clock.now += 9.0
    assert store.claim("a") is Claim.BUSY
    clock.now += 2.0
    assert store.claim("a") is Claim.GRANTED


def test_of_many_threads_exactly_one_gets_each_claim(store):
    granted, start = [], threading.Barrier(8)

    def claim_all():
        start.wait(20.0)
        granted.extend(number for number in range(50) if store.claim(str(number)) is Claim.GRANTED)

    threads = [threading.Thread(target=claim_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert sorted(granted) == list(range(50))


def test_memory_is_bounded_and_forgets_the_oldest_done_but_no_claim():
    seen = MemorySeen(capacity=2)
    seen.claim("running")
    for key in "abc":
        seen.claim(key)
        seen.done(key)
    assert len(seen) == 2
    assert seen.claim("running") is Claim.BUSY
    assert seen.claim("c") is Claim.DONE


def test_a_file_remembers_across_restarts_and_processes(tmp_path):
    path = tmp_path / "seen.db"
    with SqliteSeen(path) as one, SqliteSeen(path) as other:
        assert one.claim("a") is Claim.GRANTED
        assert other.claim("a") is Claim.BUSY
        one.done("a")
        assert other.claim("a") is Claim.DONE
    with SqliteSeen(path) as later:
        assert later.claim("a") is Claim.DONE


def test_old_entries_are_removed_from_the_file(tmp_path, clock):
    with SqliteSeen(tmp_path / "seen.db", 50.0, clock=clock) as seen:
        for number in range(10):
            seen.claim(str(number))
            seen.done(str(number))
        clock.now += 100.0
        seen.claim("new")
        rows = seen._database.execute("SELECT count(*) FROM seen").fetchone()
    assert rows == (1,)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "no.db"
    path.write_bytes(b"this is no database, but long enough to be looked at" * 100)
    with pytest.raises(ConfigurationError, match=r"no\.db"):
        SqliteSeen(path)


@pytest.mark.parametrize("options", [{"ttl_s": 0}, {"claim_s": -1}, {"capacity": 0}])
def test_wrong_numbers_are_named(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        MemorySeen(**options)


# ---- listeners -----------------------------------------------------------------------------------


def test_a_message_is_processed_once(store):
    got = []
    listener = idempotent(got.append, store=store)
    for one in (message("1"), message("2"), message("1")):
        listener(one)
    assert [one.message_id for one in got] == ["1", "2"]


def test_a_failure_lets_it_be_processed_again(store):
    calls = []

    @idempotent(store=store)
    def listener(one):
        calls.append(one.message_id)
        if len(calls) == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        listener(message())
    listener(message())
    listener(message())
    assert calls == ["1", "1"]


def test_a_message_that_somebody_is_at_comes_again_after_longer_and_longer_pauses(store):
    store.claim("orders 1")
    with pytest.raises(RetryLater) as raised:
        idempotent(print, store=store)(message())
    assert raised.value.delay_level is None, "the broker chooses, longer with each attempt"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_message_whose_owner_died_outlives_the_claim_with_the_attempts_that_it_has(
    kind, clock, tmp_path
):
    seen = MemorySeen(clock=clock) if kind == "memory" else SqliteSeen(tmp_path / "s", clock=clock)
    got = []
    listener = idempotent(got.append, store=seen)
    seen.claim("orders 1")  # by a member that is killed now
    for attempt in range(16):  # what a consumer grants without being told otherwise
        try:
            listener(message())
        except RetryLater as again:
            clock.now += (
                DEFAULT_DELAY_LEVELS_MS[retry_level(attempt, again.delay_level or 0) - 1] / 1000
            )
    assert len(got) == 1


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({"max_reconsume_times": 3}, "100 s"),
        ({"max_reconsume_times": 100, "ordered": True}, "100 s"),
        (
            {
                "max_reconsume_times": 3,
                "ordered": True,
                "suspend_current_queue_time_s": 60.0,  # 30 s is the most that counts
            },
            "90 s",
        ),
    ],
    ids=["concurrent", "ordered", "ordered with long pauses"],
)
def test_a_consumer_that_gives_messages_up_while_a_dead_members_claim_stands_is_refused(
    options, patience
):
    consumer = PushConsumer("billing", nameserver="127.0.0.1:1", **options)
    with pytest.raises(ConfigurationError, match=f"900 s, .* after {patience}.*claim_s"):
        consumer.subscribe("orders", listener=idempotent(print, store=MemorySeen()))
    consumer.subscribe("orders", listener=idempotent(print, store=MemorySeen(claim_s=80.0)))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_consumer_that_tries_often_enough_takes_any_idempotent_listener(ordered):
    class Store:
        def claim(self, _key):
            return Claim.GRANTED

    for face in (PushConsumer, aio.PushConsumer):
        consumer = face("billing", nameserver="127.0.0.1:1", ordered=ordered)
        consumer.subscribe("orders", listener=idempotent(print, store=MemorySeen()))
    few = PushConsumer("billing", nameserver="127.0.0.1:1", max_reconsume_times=1)
    few.subscribe("orders", listener=idempotent(print, store=Store()))  # it does not say how long


def test_a_key_of_the_business_covers_a_message_that_was_sent_twice(store):
    got = []
    listener = idempotent(got.append, store=store, key=lambda one: one.keys[0])
    listener(message("1"))
    listener(message("2"))
    assert len(got) == 1


def test_the_same_id_in_two_topics_is_two_messages(store):
    got = []
    listener = idempotent(got.append, store=store)
    listener(message("1", "orders"))
    listener(message("1", "refunds"))
    assert len(got) == 2


def test_coroutine_listeners_are_coroutines_still(store):
    got = []

    @idempotent(store=store)
    async def listener(one):
        await asyncio.sleep(0)
        got.append(one.message_id)
        if len(got) == 1:
            raise ValueError("no")

    async def run():
        with pytest.raises(ValueError, match="no"):
            await listener(message())
        await listener(message())
        await listener(message())

    asyncio.run(run())
    assert got == ["1", "1"]


def test_lists_are_refused(store):
    with pytest.raises(ConfigurationError, match="batch_size=1"):
        idempotent(print, store=store)([message()])
