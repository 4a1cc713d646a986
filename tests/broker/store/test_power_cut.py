"""Power cuts at any moment: what was flushed is there, nothing comes back, nothing is torn."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.powered import PoweredDisk
from broker.store.storing import NOW, bodies, crash, opened, put
from gimbalmq.broker.store import FlushPolicy, RetentionPolicy

TOPICS = ("orders", "refunds")

STEPS = st.one_of(
    st.tuples(
        st.just("put"), st.sampled_from(TOPICS), st.integers(0, 1), st.integers(1, 12),
        st.sampled_from((1, 300, 900)),
    ),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
    st.tuples(st.sampled_from(("flush", "tick", "tick", "tick", "stop", "cut", "cut"))),
)  # fmt: skip


class Owner:
    """A store whose machine loses its power, and what it must still have."""

    def __init__(self, directory, seed, policy):
        self.directory = Path(directory)
        self.chance = random.Random(seed)
        self.policy = policy
        self.now_ms = NOW
        self.count = 0
        #: By queue: (place, offset, body) of all messages since its topic was made.
        self.appended = {}
        self.open()

    def open(self):
        self.disk = PoweredDisk(self.directory)
        self.store = opened(
            self.directory,
            self.disk,
            flush=self.policy,
            retention=RetentionPolicy(keep_bytes=20_000),
            retention_interval_ms=1,
        )

    def put(self, topic, queue_id, count, size):
        made = []
        for _ in range(count):
            self.count += 1
            made.append(f"{self.count}-".encode().ljust(size, b"x"))
        stored = put(self.store, *made, topic=topic, queue_id=queue_id, now_ms=self.now_ms)
        self.appended.setdefault((topic, queue_id), []).extend(
            (one.physical_offset, one.queue_offset, body)
            for one, body in zip(stored, made, strict=True)
        )

    def delete(self, topic):
        self.store.delete_topic(topic)
        for key in [key for key in self.appended if key[0] == topic]:
            del self.appended[key]

    def flush(self):
        self.store.flush()

    def tick(self):
        self.now_ms += 1000
        self.store.tick(self.now_ms)
        assert self.store.problem is None

    def stop(self):
        self.store.close()
        self.open()
        assert self.store.report.clean
        self.check(self.store.log_bounds()[1])

    def cut(self):
        safe_until = self.store._log.flushed_until
        crash(self.store)
        self.disk.cut_power(self.chance)
        self.open()
        self.check(safe_until)

    def check(self, safe_until):
        """Every queue has its messages up to some point, and never fewer than were safe."""
        start, end = self.store.log_bounds()
        assert end >= safe_until
        for (topic, queue_id), appended in self.appended.items():
            left = [one for one in appended if one[0] < end]
            assert len(left) >= sum(place < safe_until for place, _, _ in appended)
            assert bodies(self.store, topic, queue_id) == [
                body for place, _, body in left if place >= start
            ]
            if left:
                assert self.store.bounds(topic, queue_id)[1] == left[-1][1] + 1
            self.appended[topic, queue_id] = left
        kept = {topic for (topic, _), left in self.appended.items() if left}
        gone = set(self.store.topics()) - {topic for topic, _ in self.appended}
        assert not gone, "a deleted topic has come back"
        assert kept <= set(self.store.topics())


@given(
    steps=st.lists(STEPS, max_size=40),
    seed=st.integers(0, 1 << 30),
    policy=st.sampled_from((FlushPolicy.EACH, FlushPolicy.INTERVAL)),
)
@settings(max_examples=60, deadline=None)
def test_a_power_cut_takes_nothing_that_was_flushed(steps, seed, policy):
    with tempfile.TemporaryDirectory() as directory:
        owner = Owner(directory, seed, policy)
        for name, *arguments in steps:
            getattr(owner, name)(*arguments)
        owner.cut()
        owner.put("orders", 0, 3, 300)
        owner.stop()
        owner.store.close()
