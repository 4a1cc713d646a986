from __future__ import annotations

import json

from gimbalmq.spark import progress_line, queue_progress

PROGRESS = {
    "batchId": 4,
    "durationMs": {"triggerExecution": 2000},
    "sources": [
        {
            "startOffset": {"orders/broker-a/0": 10, "orders/broker-b/0": 5},
            "endOffset": {"orders/broker-a/0": 30, "orders/broker-a/1": 7, "orders/broker-b/0": 5},
            "latestOffset": {"orders/broker-a/0": 100, "orders/broker-a/1": 9},
        },
        {"startOffset": 3, "endOffset": 4, "latestOffset": None},
        {"startOffset": None, "endOffset": {"topic": {"0": 5}}, "latestOffset": None},
    ],
}


def test_each_queue_has_its_lag_and_rate():
    found = {one.queue.path: one for one in queue_progress(PROGRESS)}
    first = found["orders/broker-a/0"]
    assert (first.offset, first.maximum, first.lag, first.records) == (30, 100, 70, 20)
    assert first.records_per_s == 10.0
    entered = found["orders/broker-a/1"]
    assert (entered.records, entered.lag) == (0, 2)
    away = found["orders/broker-b/0"]
    assert (away.lag, away.maximum) == (None, None)
    assert len(found) == 3


def test_progress_is_taken_as_spark_gives_it_and_as_text():
    class Progress:
        json = json.dumps(PROGRESS)

    as_texts = PROGRESS | {
        "sources": [{name: json.dumps(offset) for name, offset in PROGRESS["sources"][0].items()}]
    }
    for given in (Progress(), json.dumps(PROGRESS), as_texts):
        assert queue_progress(given) == queue_progress(PROGRESS)


def test_the_line_says_what_an_operator_asks_first():
    assert progress_line(PROGRESS) == (
        "batch 4: 20 records, 10/s, lag 72 in 3 queues, most in orders/broker-a/0 (70 at 10/s), 1 away"
    )


def test_a_batch_that_is_repeated_after_a_restart_does_not_know_its_lag():
    unknown = PROGRESS | {"sources": [PROGRESS["sources"][0] | {"latestOffset": None}]}
    assert progress_line(unknown) == "batch 4: 20 records, 10/s, lag of 3 queues not known yet"


def test_before_the_first_batch_there_is_nothing():
    assert queue_progress(None) == ()
    assert progress_line(None) == "no batch yet"
    symbolic = {"sources": [{"startOffset": None, "endOffset": {"@": "latest"}}]}
    assert queue_progress(symbolic) == ()
