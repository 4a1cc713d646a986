"""Put the figures of docs/results into README and docs, or say which are not those of the results.

Decides which measurements are shown, and in which words. A page marks where they go:

    <!-- figures: how-fast -->
    (written by this script)
    <!-- figures end -->

The results are JSON files that `make bench` and `make soak` wrote. What was not measured yet is
left out. Must not know how anything is measured.

    python tools/figures.py --check | --write
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["BLOCKS", "claims", "fill", "main", "read_results"]

_MARKED: Final = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<end><!-- figures end -->)",
    re.DOTALL,
)
_BEGIN: Final = re.compile(r"<!-- figures: .*? -->")

#: What every result says about itself.
_FACTS: Final = ("ended", "commit", "machine")

Results = Mapping[str, Mapping[str, Any]]


class _Shown(NamedTuple):
    """A row of the short table: which measurement, and what it is to a reader."""

    result: str
    case: str
    anchor: str
    label: str


#: In the order of the table; `anchor` is the row's `anchor_name`.
_SHOWN: Final = (
    _Shown("bench-client", "send/sync/1KiB", "java", "send and wait, one thread, 1 KiB"),
    _Shown("bench-client", "send/pipelined/1KiB", "java", "send, 256 in flight, 1 KiB"),
    _Shown("bench-client", "send/batch/1KiB", "java", "send in batches of 100, 1 KiB"),
    _Shown("bench-client", "consume/batch-1/1KiB", "java", "consume one by one, 1 KiB"),
    _Shown("bench-client", "consume/batch-32/1KiB", "java", "consume in batches of 32, 1 KiB"),
    _Shown("bench-settle", "settle/concurrent/join", "java", "a member joins: all queues deliver"),
    _Shown("bench-settle", "settle/concurrent/leave", "java", "a member leaves"),
    _Shown("bench-settle", "settle/concurrent/kill", "java", "a member is killed"),
    _Shown("bench-settle", "settle/ordered/kill", "java", "a member of an ordered group is killed"),
    _Shown("bench-spark", "read/few-columns/1KiB", "java", "Spark reads a topic, three columns"),
    _Shown("bench-spark", "read/all-columns/1KiB", "java", "Spark reads a topic, all columns"),
    _Shown("bench-spark", "write/1KiB", "java", "Spark writes a topic"),
    _Shown(
        "bench-movement",
        "moves/CAPPED_HASH/join/256",
        "AVG",
        "a member joins, 256 queues, CAPPED_HASH: moves beyond the least",
    ),
    _Shown(
        "bench-allocation",
        "allocate/AVG/10000x1000",
        "one-by-one",
        "share out 10,000 queues among 1,000 members by AVG",
    ),
    _Shown(
        "bench-broker",
        "send/16-connections/1KiB",
        "java-broker",
        "the embedded broker stores, 16 connections, 1 KiB",
    ),
)

#: What a reader calls the other side.
_OTHERS: Final = {
    "java": "the Java client",
    "java-broker": "the Java broker",
    "one-by-one": "Java's way, member by member",
    "struct-hop": "finding the ends of records",
    "arrow-ceiling": "a source that costs nothing",
    "counting-sink": "a sink that only counts",
    "forced-without-memory": "forced without memory",
}
#: Of a rate more is better, of everything else less.
_RATE: Final = "/s"
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
#: A rate that somebody wrote by hand.
_CLAIM: Final = re.compile(
    r"\b\d[\d,.]*\s*(?:messages|msg|rows|records)\s*(?:/s|a second|per second)"
)
_CODE: Final = re.compile(r"^(`{3,}).*?^\1", re.DOTALL | re.MULTILINE)


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results by the name of their file.

    Raises:
        ValueError: a file has not the form of a result.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text("utf-8"))
        kind = "campaigns" if path.stem == "soak" else "rows"
        if not isinstance(document, dict) or not {*_FACTS, kind} <= document.keys():
            raise ValueError(
                f"{path.name} is no result: it needs {', '.join(_FACTS)} and {kind}, "
                "as the make targets write them"
            )
        found[path.stem] = document
    return found


def fill(text: str, results: Results) -> str:
    """A page with its figures.

    Raises:
        ValueError: a block is not known, or not closed.
    """

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise ValueError(f"no figures are called '{name}': there are {', '.join(BLOCKS)}")
        return f"{match['begin']}{BLOCKS[name](results)}{match['end']}"

    if len(_BEGIN.findall(text)) != len(_MARKED.findall(text)):
        raise ValueError("a block of figures is not closed by <!-- figures end -->")
    return _MARKED.sub(replaced, text)


def claims(text: str) -> list[str]:
    """Rates in the words of a page that no result stands behind.

    >>> claims("It sends 9,000 messages/s, says who?")
    ['9,000 messages/s']
    """
    return _CLAIM.findall(_CODE.sub("", _MARKED.sub("", text)))


def _how_fast(results: Results) -> str:
    """The short table: ours beside what people know, and the machines."""
    lines = []
    for shown in _SHOWN:
        row = _row(results, shown)
        if row is not None:
            lines.append((shown.label, _amount(row), _beside(row), _factor(row)))
    used = {shown.result for shown in _SHOWN} & results.keys()
    if not lines:
        return "Nothing is measured yet.\n"
    table = _table(("", "GimbalMQ", "beside", "factor"), lines)
    return f"{table}\n{_machines(results[name]['machine'] for name in sorted(used))}\n"


def _movement(results: Results) -> str:
    """Moves beyond the least: events by strategies, the range over the numbers of queues."""
    events = {
        "join": "a member joins",
        "leave": "a member leaves",
        "queue": "a queue is added",
        "queues-eighth": "an eighth of the queues is added",
    }
    rows = results.get("bench-movement", {}).get("rows", [])
    lines = []
    for event, label in events.items():
        at = [row for row in rows if row["case"].startswith(f"moves/CAPPED_HASH/{event}/")]
        if at:
            ours = [row["ours"] for row in at]
            others = [
                [row["anchor"] for row in at if row["anchor_name"] == name]
                for name in ("forced-without-memory", "capped-rendezvous", "AVG")
            ]
            lines.append((label, *map(_range, (ours, *others))))
    heading = (
        "% of the queues beyond the least",
        "`CAPPED_HASH`",
        "forced without memory",
        "capped rendezvous",
        "`AVG`",
    )
    return _table(heading, lines) if lines else ""


def _endurance(results: Results) -> str:
    """One sentence about the long campaigns; nothing before the first."""
    soak = results.get("soak")
    if soak is None:
        return ""
    passed = sum(one["outcome"] == "passed" for one in soak["campaigns"])
    minutes = sum(one["seconds"] for one in soak["campaigns"]) / 60
    return (
        f"Long campaigns (`make soak`): {passed} of {len(soak['campaigns'])} passed, "
        f"{_number(minutes)} minutes in all. {_machines([soak['machine']])}\n"
    )


def _everything(results: Results) -> str:
    """All rows of all results, a table for each."""
    parts = []
    for name, result in results.items():
        if "rows" in result:
            lines = [
                (f"`{row['case']}`", _amount(row), _beside(row), _factor(row), row.get("note", ""))
                for row in result["rows"]
            ]
            table = _table(("case", "GimbalMQ", "beside", "factor", ""), lines)
        else:
            table = _campaigns(result["campaigns"])
        parts.append(f"## {name}\n\n{table}\n{_machines([result['machine']])}{_origin(result)}\n")
    return "\n" + "\n".join(parts) + "\n"


def _campaigns(campaigns: Iterable[Mapping[str, Any]]) -> str:
    lines = [
        (
            f"`{one['name']}`",
            one["outcome"],
            f"{one['seconds']:,.0f} s",
            ", ".join(f"{name} {value}" for name, value in one["figures"].items()),
        )
        for one in campaigns
    ]
    return _table(("campaign", "outcome", "took", "figures"), lines)


#: What can stand in a page, by name.
BLOCKS: Final[dict[str, Callable[[Results], str]]] = {
    "how-fast": _how_fast,
    "endurance": _endurance,
    "movement": _movement,
    "everything": _everything,
}


def _row(results: Results, shown: _Shown) -> Mapping[str, Any] | None:
    for row in results.get(shown.result, {}).get("rows", ()):
        if (row["case"], row["anchor_name"]) == (shown.case, shown.anchor):
            found: Mapping[str, Any] = row
            return found
    return None


def _amount(row: Mapping[str, Any]) -> str:
    unit = "%" if row["unit"].startswith("%") else f" {row['unit']}"
    return f"{_number(row['ours'])}{unit}"


def _beside(row: Mapping[str, Any]) -> str:
    if row["anchor"] is None:
        return ""
    unit = "%" if row["unit"].startswith("%") else ""
    other = _OTHERS.get(row["anchor_name"], row["anchor_name"])
    return f"{_number(row['anchor'])}{unit}, {other}"


def _factor(row: Mapping[str, Any]) -> str:
    """How many times better: above 1 is for us, whatever the unit."""
    ratio = row["ratio"]
    if not ratio:
        return ""
    return f"{_number(ratio if row['unit'].endswith(_RATE) else 1 / ratio)} {_TIMES}"


def _range(values: list[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    if abs(value) >= 1000:
        # Three digits are all that a second run would confirm.
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def _machines(facts: Iterable[Mapping[str, Any]]) -> str:
    """One sentence that names every machine once."""
    named = dict.fromkeys(
        f"{one['cores']} cores ({one.get('cpu') or one.get('processor')}), "
        f"{one['memory_bytes'] / 2**30:.0f} GiB, {_python(one['python'])}"
        for one in facts
    )
    return f"Measured on {'; '.join(named)}."


def _python(version: str) -> str:
    return version if version.startswith(("CPython", "PyPy")) else f"CPython {version}"


def _origin(result: Mapping[str, Any]) -> str:
    commit, _, changes = str(result["commit"]).partition("+")
    beside = ", with changes" if changes else ""
    return f" {result['ended'][:10]}, commit {commit[:12]}{beside}."


def _table(heading: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """Rows as Markdown."""
    cells = [heading, ("---",) * len(heading), *lines]
    return "".join(
        f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in cells
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Figures of README and docs.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit 1 when a figure is another")
    action.add_argument("--write", action="store_true", help="write them into the pages")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args(arguments)
    wrong = []
    try:
        results = read_results(options.root / "docs" / "results")
        for page in [options.root / "README.md", *sorted((options.root / "docs").rglob("*.md"))]:
            name, text = page.relative_to(options.root).as_posix(), page.read_text("utf-8")
            filled = fill(text, results)
            if options.write:
                page.write_text(filled, "utf-8")
            elif filled != text:
                wrong.append(f"{name}: figures are not those of docs/results: run `make figures`")
            wrong += [f"{name}: '{claim}' has no result behind it" for claim in claims(text)]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
