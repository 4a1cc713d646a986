import math
import re

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.telemetry.exposition import expose
from gimbalmq.telemetry.families import Distribution, Kind, Metric

LINE = re.compile(r'([a-z_]+)\{topic="((?:[^"\\\n]|\\.)*)"\} (\S+)')


def test_a_histogram_counts_upwards_and_ends_at_infinity():
    took = Metric("took_seconds", Kind.HISTOGRAM, "How long.", ("broker",), (0.1, 1.0))
    text = expose([took.family([Distribution(("broker-a",), (3, 2, 1), 4.25)])])
    assert text.splitlines() == [
        "# HELP took_seconds How long.",
        "# TYPE took_seconds histogram",
        'took_seconds_bucket{broker="broker-a",le="0.1"} 3',
        'took_seconds_bucket{broker="broker-a",le="1"} 5',
        'took_seconds_bucket{broker="broker-a",le="+Inf"} 6',
        'took_seconds_sum{broker="broker-a"} 4.25',
        'took_seconds_count{broker="broker-a"} 6',
    ]


def test_a_metric_of_several_sources_is_described_once():
    lag = Metric("lag", Kind.GAUGE, "Messages\nbehind.", ("group",))
    text = expose([lag.family([lag.sample(1, "a")]), lag.family([lag.sample(2, "b")])])
    assert text == (
        '# HELP lag Messages\\nbehind.\n# TYPE lag gauge\nlag{group="a"} 1\nlag{group="b"} 2\n'
    )


def test_nothing_measured_is_nothing_written():
    assert expose([]) == ""


@given(st.text(), st.floats() | st.integers(0, 1 << 53))
def test_any_label_and_any_number_can_be_read_back(topic, value):
    metric = Metric("lag", Kind.GAUGE, "Lag.", ("topic",))
    text = expose([metric.family([metric.sample(value, topic)])])
    found = LINE.fullmatch(text.split("\n")[2])
    assert found is not None
    escapes = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
    assert re.sub(r"\\.", lambda one: escapes[one[0]], found[2]) == topic
    read = float(found[3])
    assert read == float(value) or (math.isnan(read) and math.isnan(value))
