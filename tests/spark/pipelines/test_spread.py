from __future__ import annotations

import pytest

from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.pipelines.load_profile import _sizes
from gimbalmq.spark.pipelines.profile_page import profile_page
from gimbalmq.spark.pipelines.report import Report
from gimbalmq.spark.pipelines.spread import predict, skew, weights_of

LOADS = {MessageQueue("t", "a", number): load for number, load in enumerate([8.0, 1, 1, 1, 1, 0])}


def test_weights_are_averages_and_never_nothing():
    weights = weights_of(LOADS)
    assert weights["t/a/0"] == 4.0
    assert weights["t/a/5"] == 0.001
    assert weights_of({MessageQueue("t", "a", 0): 0.0}) == {"t/a/0": 1.0}


def test_weighted_spreads_a_skewed_load_at_least_as_well_as_counting_queues():
    found = {(one.strategy, one.members): one for one in predict(LOADS, [2, 3])}
    assert found["WEIGHTED", 2].busiest <= found["AVG", 2].busiest
    assert found["WEIGHTED", 2].busiest == pytest.approx(8 / 6, abs=0.01)
    assert ("CONFIG", 2) not in found


def test_an_even_load_has_no_skew():
    assert skew([2, 2]) == skew([0, 0]) == 1.0


def test_the_page_shows_every_table_and_escapes_names():
    report = Report(
        "load-profile",
        {"topic": "<t>", "by": "messages"},
        {
            "queues": [{"broker": "a", "queue_id": 0, "messages": 5}],
            "keys": [],
            "spread": [{"strategy": "AVG", "members": 2, "busiest": 1.2}],
        },
    )
    page = profile_page(report)
    assert "&lt;t&gt;" in page
    assert "<t>" not in page
    assert "AVG" in page
    assert "None." in page


def test_sizes_are_numbers_from_one_on():
    assert _sizes("2,4") == [2, 4]
    with pytest.raises(ValueError, match="option 'groupSizes' is '0'"):
        _sizes("0")
