from __future__ import annotations

from pathlib import Path

import pytest

from broker.store.storing import NOW, bodies, crash, opened, put, segments
from gimbalmq.broker.store import ReadStatus, RetentionPolicy
from gimbalmq.broker.store.retention import expired
from gimbalmq.broker.store.segments import Segment
from gimbalmq.errors import ConfigurationError


def rows(*last_ms):
    return [
        Segment(Path(str(n)), n * 100, 100, n * 100 + 80, first_ms=last - 5, last_ms=last)
        for n, last in enumerate(last_ms)
    ]


@pytest.mark.parametrize(
    ("policy", "now_ms", "count"),
    [
        (RetentionPolicy(keep_ms=None), 10**9, 0),
        (RetentionPolicy(keep_ms=50), 60, 0),
        (RetentionPolicy(keep_ms=50), 61, 1),
        (RetentionPolicy(keep_ms=50), 71, 2),
        (RetentionPolicy(keep_ms=50), 10**9, 2),
        (RetentionPolicy(keep_ms=None, keep_bytes=240), 0, 0),
        (RetentionPolicy(keep_ms=None, keep_bytes=239), 0, 1),
        (RetentionPolicy(keep_ms=None, keep_bytes=1), 0, 2),
        (RetentionPolicy(keep_ms=50, keep_bytes=160), 61, 1),
        (RetentionPolicy(keep_ms=50, keep_bytes=159), 61, 2),
    ],
)
def test_the_oldest_segments_go_and_never_the_active_one(policy, now_ms, count):
    assert expired(rows(10, 20, 30), policy, now_ms) == count


def test_an_empty_log_has_nothing_to_give():
    assert expired([], RetentionPolicy(keep_bytes=1), 10**12) == 0


@pytest.mark.parametrize("bad", [{"keep_ms": 0}, {"keep_bytes": -1}])
def test_a_limit_must_be_positive(bad):
    with pytest.raises(ConfigurationError, match="give a positive number, or None"):
        RetentionPolicy(**bad)


def filled(tmp_path):
    store = opened(
        tmp_path,
        retention=RetentionPolicy(keep_ms=1000, keep_bytes=None),
        retention_interval_ms=100,
    )
    put(store, b"only", topic="rare", KEYS="k")
    for number in range(12):
        put(store, b"%d" % number * 900, now_ms=NOW + number * 100, KEYS="k")
    assert len(segments(tmp_path)) >= 3
    return store


def test_minimum_offsets_follow_and_indexes_shrink(tmp_path):
    store = filled(tmp_path)
    for moment in range(1500, 2500, 100):
        store.tick(NOW + moment)
    start, _ = store.log_bounds()
    assert start > 0
    assert int(segments(tmp_path)[0].name) == start
    minimum, maximum = store.bounds("orders", 0)
    assert 0 < minimum < maximum == 12
    assert bodies(store) == [b"%d" % number * 900 for number in range(minimum, 12)]
    assert store.read("orders", 0, 0, max_messages=1, max_bytes=1).status is ReadStatus.OFFSET_TOO_SMALL  # fmt: skip
    assert store.earliest_time("orders", 0) == NOW + minimum * 100
    assert store.offset_at("orders", 0, 0) == minimum
    assert len(store.find("orders", "k", 0, 1 << 60, 99)) == 12 - minimum
    assert len(list((tmp_path / "keys").iterdir())) <= len(segments(tmp_path))
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_lost_all_its_messages_keeps_counting_also_after_a_restart(tmp_path, clean):
    store = filled(tmp_path)
    for moment in range(1500, 2500, 100):
        store.tick(NOW + moment)
    assert store.bounds("rare", 0) == (1, 1)
    store.close() if clean else crash(store)
    store = opened(tmp_path)
    assert store.report.clean is clean
    assert store.bounds("rare", 0) == (1, 1)
    assert store.earliest_time("rare", 0) == -1
    result = store.read("rare", 0, 1, max_messages=1, max_bytes=1)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, 1)
    assert put(store, b"next", topic="rare")[0].queue_offset == 1
    assert bodies(store, "rare") == [b"next"]
    store.close()


def test_nothing_goes_before_its_indexes_are_safe(tmp_path):
    store = filled(tmp_path)
    assert store.retain(NOW + 10**9) == 0
    while store._checkpoints.indexed_until < store._log.active.start:
        store.tick(NOW)
    assert store.retain(NOW + 10**9) > 0
    store.close()


def test_a_deleted_topic_is_forgotten_once_its_records_are_gone(tmp_path):
    store = filled(tmp_path)
    store.delete_topic("rare")
    put(store, *[b"x" * 900] * 12, now_ms=NOW + 5000)
    for moment in range(9000, 12000, 100):
        store.tick(NOW + moment)
    assert store._deletions.before == {}
    store.close()
    opened(tmp_path).close()
