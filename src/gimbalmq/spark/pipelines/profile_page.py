"""The report of `load-profile` as a page that needs nothing but itself."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gimbalmq.spark.pipelines.report import Report

__all__ = ["profile_page"]

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0 2rem}td,th{padding:.2rem .8rem;text-align:left}"
    "tr:nth-child(even){background:#8881}.bar{background:#3b82c4;height:.8rem;display:block}"
    "td.wide{width:16rem}@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}}"
)


def profile_page(report: Report) -> str:
    """The page as HTML."""
    by = str(report.facts["by"])
    topic = html.escape(str(report.facts["topic"]))
    facts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{_cell(value)}</td></tr>"
        for name, value in report.facts.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Load of {topic}</title>'
        f"<style>{_STYLE}</style><h1>Load of topic {topic}</h1><table>{facts}</table>"
        f"<h2>Queues</h2>{_table(report.tables['queues'], by)}"
        f"<h2>Busiest keys</h2>{_table(report.tables['keys'], 'messages')}"
        "<h2>Load of the busiest member</h2><p>In averages, as each strategy would share out this "
        f"load: 1.0 is even.</p>{_table(report.tables['spread'], 'busiest')}</html>\n"
    )


def _table(rows: Sequence[Mapping[str, Any]], barred: str) -> str:
    if not rows:
        return "<p>None.</p>"
    most = max(float(row[barred]) for row in rows) or 1.0
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = []
    for row in rows:
        cells = "".join(f"<td>{_cell(value)}</td>" for value in row.values())
        share = 100 * float(row[barred]) / most
        lines.append(
            f'<tr>{cells}<td class="wide"><span class="bar" style="width:{share:.0f}%"></span></td></tr>'
        )
    return f"<table><tr>{head}<th></th></tr>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    return html.escape(f"{value:,}" if isinstance(value, int | float) else str(value))
