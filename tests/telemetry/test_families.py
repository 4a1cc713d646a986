import msgspec
import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.telemetry.families import (
    Distribution,
    Family,
    Kind,
    Metric,
    Sample,
    joined,
    labelled,
    nothing,
)

SENT = Metric("sent_total", Kind.COUNTER, "Messages sent.", ("topic",))
TOOK = Metric("took_seconds", Kind.HISTOGRAM, "Time.", (), (0.1, 1.0))


def test_a_sample_needs_a_value_for_each_label():
    with pytest.raises(ConfigurationError, match="sent_total"):
        SENT.sample(1)


def test_samples_of_equal_labels_are_added_and_the_others_kept():
    first = SENT.family([SENT.sample(1, "a"), SENT.sample(2, "b")])
    second = SENT.family([SENT.sample(10, "a")])
    assert joined([first, second]) == [Family(SENT, (Sample(("a",), 11.0), Sample(("b",), 2.0)))]


def test_histograms_are_added_bucket_by_bucket():
    one = TOOK.family([Distribution((), (1, 2, 0), 3.0)])
    (family,) = joined([one, one, TOOK.family([nothing(TOOK)])])
    assert family.samples == (Distribution((), (2, 4, 0), 6.0),)
    assert family.samples[0].count == 6


def test_one_name_for_two_things_is_refused():
    other = Metric("sent_total", Kind.GAUGE, "Something else.", ("topic",))
    with pytest.raises(ConfigurationError, match="defined twice"):
        joined([SENT.family([]), other.family([])])


def test_a_label_says_where_samples_come_from():
    (family,) = labelled([SENT.family([SENT.sample(1, "a")])], "worker", "3")
    assert family.metric.labels == ("topic", "worker")
    assert family.samples == (Sample(("a", "3"), 1.0),)


def test_families_survive_the_way_from_a_child_to_its_worker():
    families = (
        SENT.family([SENT.sample(1, "a")]),
        TOOK.family([Distribution((), (1, 2, 0), 3.0)]),
    )
    assert msgspec.json.decode(msgspec.json.encode(families), type=tuple[Family, ...]) == families
