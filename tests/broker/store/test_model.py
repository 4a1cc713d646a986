"""The store against a naive model: dicts and lists that never forget and never crash."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from broker.store.storing import NOW, crash, message, opened, segments
from gimbalmq.broker.store import Boundary, ReadStatus, RetentionPolicy
from gimbalmq.model.java import hash_code
from gimbalmq.wire.record import decode_records

TOPICS = st.sampled_from(["orders", "%RETRY%g"])
QUEUES = st.integers(0, 2)
TAGS = ["", "paid", "refunded"]
KEYS = ["", "k1", "k2", "k1 k2"]
ENTRY = st.tuples(TOPICS, QUEUES, st.integers(0, 700), st.sampled_from(TAGS), st.sampled_from(KEYS))


class Kept:
    """One message as the model knows it."""

    def __init__(self, number, offset, place, moment, tag, keys):
        self.number, self.offset, self.place = number, offset, place
        self.moment, self.tag, self.keys = moment, tag, keys

    @property
    def body(self):
        return b"%d:" % self.number


class StoreAgainstModel(RuleBasedStateMachine):
    """Queues are lists of messages; what retention took is told by the log's start."""

    @initialize()
    def begin(self):
        self.directory = Path(tempfile.mkdtemp(prefix="gimbalmq-model-"))
        self.queues: dict[tuple[str, int], list[Kept]] = {}
        self.count = 0
        self.now = NOW
        self.open()

    def open(self, **options):
        policy = RetentionPolicy(keep_ms=None, keep_bytes=3 * 4096)
        self.store = opened(self.directory, retention=policy, **options)

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)

    @rule(batch=st.lists(ENTRY, min_size=1, max_size=4), step=st.integers(0, 20))
    def append(self, batch, step):
        self.now += step
        messages, numbers = [], []
        for topic, queue_id, size, tag, keys in batch:
            properties = {k: v for k, v in (("TAGS", tag), ("KEYS", keys)) if v}
            body = b"%d:" % self.count + bytes(size)
            messages.append(message(body, topic, queue_id, UNIQ_KEY=f"U{self.count}", **properties))
            numbers.append(self.count)
            self.count += 1
        where = self.store.append(messages, self.now)
        for number, one, (topic, queue_id, _, tag, keys) in zip(numbers, where, batch, strict=True):
            queue = self.queues.setdefault((topic, queue_id), [])
            assert one.queue_offset == (queue[-1].offset + 1 if queue else 0)
            queue.append(
                Kept(number, one.queue_offset, one.physical_offset, self.now, tag, keys.split())
            )

    @rule(count=st.integers(1, 40))
    def append_many(self, count):
        """Enough to fill segments, so that retention has something to take."""
        self.append([("orders", 0, 600, "paid", "k1")] * 4, 1)
        for _ in range(count // 4):
            self.append([("orders", 0, 600, "paid", "k1")] * 2, 1)

    @rule()
    def tick(self):
        self.now += 10_000
        self.store.tick(self.now)
        assert self.store.problem is None

    @rule()
    def reopen(self):
        self.store.close()
        self.open()
        assert self.store.report.clean

    @rule()
    def kill(self):
        crash(self.store)
        self.open()
        assert self.store.report.cut_bytes == 0

    @rule(garbage=st.binary(max_size=60))
    def tear(self, garbage):
        """A crash that leaves an unfinished append behind the log's end."""
        end = self.store.log_bounds()[1]
        active = self.store._log.active
        crash(self.store)
        with segments(self.directory)[-1].open("r+b") as file:
            file.seek(end - active.start)
            file.write(garbage[: active.end - end])
        self.open()

    @rule(take=st.integers(1, 400))
    @precondition(lambda self: any(self.queues.values()))
    def lose_the_last_append(self, take):
        """A crash of the machine that takes bytes of the last, unflushed append."""
        last = max(one.place for queue in self.queues.values() for one in queue)
        _, end = self.store.log_bounds()
        active, flushed_until = self.store._log.active, self.store._log.flushed_until
        if last < max(active.start, flushed_until):
            return  # that would be damage, not a torn tail
        crash(self.store)
        os.truncate(segments(self.directory)[-1], max(end - take, last + 10) - active.start)
        self.open()
        (_, kept_until) = self.store.log_bounds()
        for queue in self.queues.values():
            while queue and queue[-1].place >= kept_until:
                self.lost = queue.pop()

    @rule(topic=TOPICS)
    def delete_topic(self, topic):
        self.store.delete_topic(topic)
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    def held(self, key):
        start = self.store.log_bounds()[0]
        return [one for one in self.queues.get(key, []) if one.place >= start]

    @invariant()
    def every_queue_has_its_messages(self):
        if not hasattr(self, "store"):
            return
        assert set(self.store.topics()) >= {key[0] for key, queue in self.queues.items() if queue}
        for key, queue in self.queues.items():
            if queue:
                self.check_queue(key, self.held(key), queue[-1].offset + 1)

    def check_queue(self, key, held, maximum):
        minimum = held[0].offset if held else maximum
        assert self.store.bounds(*key) == (minimum, maximum)
        offset = minimum
        found = []
        while True:
            result = self.store.read(*key, offset, max_messages=7, max_bytes=3000)
            if result.status is not ReadStatus.FOUND:
                assert result.status is ReadStatus.OFFSET_OVERFLOW_ONE
                break
            found += decode_records(b"".join(result.records), "b")
            offset = result.next_offset
        assert [one.queue_offset for one in found] == [one.offset for one in held]
        assert [one.physical_offset for one in found] == [one.place for one in held]
        assert [one.body[: one.body.index(b":") + 1] for one in found] == [o.body for o in held]

    @rule(topic=TOPICS, queue_id=QUEUES, tag=st.sampled_from(TAGS))
    def filter_by_tag(self, topic, queue_id, tag):
        held = self.held((topic, queue_id))
        if held:
            result = self.store.read(
                topic,
                queue_id,
                held[0].offset,
                max_messages=1000,
                max_bytes=1 << 30,
                wanted=lambda number, _: number == hash_code(tag),
            )
            wanted = [one.place for one in held if one.tag == tag]
            found = decode_records(b"".join(result.records), "b")
            assert [one.physical_offset for one in found] == wanted
            assert result.next_offset == held[-1].offset + 1

    @rule(topic=TOPICS, queue_id=QUEUES, moment=st.integers(-5, 300))
    def search_by_time(self, topic, queue_id, moment):
        held, at = self.held((topic, queue_id)), NOW + moment
        if held:
            later = [one.offset for one in held if one.moment >= at]
            earlier = [one.offset for one in held if one.moment <= at]
            lower = self.store.offset_at(topic, queue_id, at)
            assert lower == (later[0] if later else held[-1].offset + 1)
            upper = self.store.offset_at(topic, queue_id, at, Boundary.UPPER)
            assert upper == (earlier[-1] if earlier else 0)
            assert self.store.earliest_time(topic, queue_id) == held[0].moment

    @rule(topic=TOPICS, key=st.sampled_from(["k1", "k2", "k3"]))
    def find_by_key(self, topic, key):
        held = [one for name in self.queues if name[0] == topic for one in self.held(name)]
        wanted = sorted((one.place for one in held if key in one.keys), reverse=True)
        found = self.store.find(topic, key, 0, 1 << 60, 10_000)
        places = [one.physical_offset for one in decode_records(b"".join(found), "b")]
        assert places == wanted

    @rule(data=st.data())
    @precondition(lambda self: any(self.queues.values()))
    def view_by_place_and_unique_id(self, data):
        one = data.draw(st.sampled_from([o for queue in self.queues.values() for o in queue]))
        record = self.store.record_at(one.place)
        if one.place < self.store.log_bounds()[0]:
            assert record is None
            return
        assert decode_records(record, "b")[0].body.startswith(one.body)
        topic = decode_records(record, "b")[0].record_topic
        (found,) = self.store.find(topic, f"U{one.number}", 0, 1 << 60, 9)
        assert bytes(found) == bytes(record)


# No shrinking: every step waits for the disk, and a history of thirty steps reads well enough.
StoreAgainstModel.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, phases=[Phase.reuse, Phase.generate]
)
TestStoreAgainstModel = StoreAgainstModel.TestCase
