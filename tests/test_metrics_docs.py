"""The reference page and the dashboard, held against the metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gimbalmq.telemetry.catalogue import CATALOGUE
from gimbalmq.telemetry.families import Kind

DOCS = Path(__file__).parents[1] / "docs"
DASHBOARD = json.loads((DOCS / "dashboards" / "gimbalmq.json").read_text("utf-8"))
HOW_TO = (DOCS / "how-to" / "watch-with-prometheus.md").read_text("utf-8")
#: What the scraper and Prometheus itself add.
ADDED_LABELS = {"instance", "job", "le", "worker"}


def rows():
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help} |"


def queries():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def series():
    """Every name that can be queried, with its metric."""
    for metric in CATALOGUE:
        if metric.kind is Kind.HISTOGRAM:
            yield from ((f"{metric.name}_{part}", metric) for part in ("bucket", "sum", "count"))
        else:
            yield metric.name, metric


def check(query):
    known = dict(series())
    names = re.findall(r"gimbalmq_\w+", query)
    assert names, f"asks for no metric of ours: {query}"
    for name in names:
        assert name in known, f"there is no {name}"
    labels = {label for name in names for label in known[name].labels} | ADDED_LABELS
    asked = {
        label.strip()
        for listed in re.findall(r"by \(([^)]*)\)", query)
        for label in listed.split(",")
    } | set(re.findall(r"[{,]\s*(\w+)\s*=", query))
    assert asked <= labels, f"no such labels: {asked - labels} in {query}"
    assert query.count("(") == query.count(")")


def test_the_reference_lists_every_metric_as_it_is():
    page = (DOCS / "reference" / "metrics.md").read_text("utf-8")
    listed = [line for line in page.splitlines() if line.startswith("| `gimbalmq_")]
    assert listed == list(rows())


@pytest.mark.parametrize("query", queries())
def test_the_dashboard_asks_for_metrics_that_exist(query):
    check(query)


def test_the_dashboard_shows_every_metric():
    shown = set(re.findall(r"gimbalmq_\w+", " ".join(queries())))
    assert [metric.name for metric in CATALOGUE if not any(metric.name in s for s in shown)] == []


def test_the_alarms_of_the_how_to_ask_for_metrics_that_exist():
    alarms = re.findall(r"\| `([^`]*gimbalmq_[^`]*)` \|", HOW_TO)
    assert len(alarms) == 5
    for alarm in alarms:
        check(alarm)


def test_a_query_for_what_does_not_exist_is_found():
    with pytest.raises(AssertionError, match="gimbalmq_nonsense"):
        check("sum(gimbalmq_nonsense)")
    with pytest.raises(AssertionError, match="colour"):
        check("sum by (colour) (gimbalmq_consumer_queues)")


def test_panels_have_their_own_ids_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for spot in (panel["gridPos"] for panel in panels)
        for x in range(spot["x"], spot["x"] + spot["w"])
        for y in range(spot["y"], spot["y"] + spot["h"])
    ]
    assert len(set(cells)) == len(cells)
