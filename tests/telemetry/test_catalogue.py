import re

from gimbalmq.telemetry import catalogue
from gimbalmq.telemetry.catalogue import CATALOGUE
from gimbalmq.telemetry.families import Kind, Metric


def test_the_catalogue_has_every_metric_once():
    defined = [value for value in vars(catalogue).values() if isinstance(value, Metric)]
    assert sorted(one.name for one in CATALOGUE) == sorted(one.name for one in defined)
    assert len({one.name for one in CATALOGUE}) == len(CATALOGUE)


def test_names_follow_the_rules_of_prometheus():
    for metric in CATALOGUE:
        assert re.fullmatch(r"gimbalmq_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)
        assert list(metric.bounds) == sorted(metric.bounds)
        assert metric.help.endswith(".")
        assert "le" not in metric.labels
