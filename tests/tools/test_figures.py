from __future__ import annotations

import json

import pytest

MACHINE = {
    "cpu": "Abacus",
    "cores": 2,
    "memory_bytes": 4 * 2**30,
    "python": "CPython 3.11.7",
}
SYNC = {
    "case": "send/sync/1KiB",
    "ours": 3600.0,
    "anchor": 3000.0,
    "anchor_name": "java",
    "ratio": 1.25,  # of the rounds, which need not be that of the medians
    "unit": "messages/s",
}
KILL = {
    "case": "settle/ordered/kill",
    "ours": 5.0,
    "anchor": 50.0,
    "anchor_name": "java",
    "ratio": 0.1,
    "unit": "s",
}
FACTS = {"ended": "2026-01-02T03:04:05", "commit": "abc+changes", "machine": MACHINE}
PAGE = "Before.\n<!-- figures: how-fast -->\nold\n<!-- figures end -->\nAfter.\n"


@pytest.fixture
def root(tmp_path):
    """A repository with a README that shows figures, and without results."""
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "README.md").write_text(PAGE)
    return tmp_path


def measure(root, name, *rows):
    (root / "docs" / "results" / f"{name}.json").write_text(json.dumps(FACTS | {"rows": rows}))


def test_figures_come_from_the_results_with_their_machine(tool, root):
    measure(root, "bench-client", SYNC)
    measure(root, "bench-settle", KILL)
    assert tool.main(["--write", "--root", str(root)]) == 0
    text = (root / "README.md").read_text()
    assert "| 3,600 messages/s | 3,000, the Java client | 1.25 \N{MULTIPLICATION SIGN} |" in text
    assert "| 5 s | 50, the Java client | 10 \N{MULTIPLICATION SIGN} |" in text
    assert "Measured on 2 cores (Abacus), 4 GiB, CPython 3.11.7." in text
    assert text.startswith("Before.\n<!--")
    assert text.endswith("-->\nAfter.\n")


def test_what_was_not_measured_is_left_out(tool, root):
    measure(root, "bench-settle", KILL)
    text = tool.fill(PAGE, tool.read_results(root / "docs" / "results"))
    assert "messages/s" not in text
    assert text.count("\n| ") == 3
    assert "Nothing is measured yet" in tool.fill(PAGE, {})


def test_a_figure_that_is_not_the_results_is_found(tool, root, capsys):
    measure(root, "bench-client", SYNC)
    tool.main(["--write", "--root", str(root)])
    assert tool.main(["--check", "--root", str(root)]) == 0
    measure(root, "bench-client", SYNC | {"ours": 4800.0})
    assert tool.main(["--check", "--root", str(root)]) == 1
    assert "README.md: figures are not those of docs/results" in capsys.readouterr().err


def test_a_rate_that_no_result_stands_behind_is_found(tool, root, capsys):
    (root / "README.md").write_text("It sends 50,000 messages/s.\n```text\n7 rows/s\n```\n")
    assert tool.main(["--check", "--root", str(root)]) == 1
    assert "'50,000 messages/s' has no result behind it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- figures: nonsense -->\n<!-- figures end -->\n", "no figures are called 'nonsense'"),
        ("<!-- figures: how-fast -->\n", "not closed"),
    ],
)
def test_a_block_that_cannot_be_filled_is_an_error(tool, root, capsys, text, complaint):
    (root / "README.md").write_text(text)
    assert tool.main(["--check", "--root", str(root)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_that_is_no_result_is_an_error(tool, root, capsys):
    (root / "docs" / "results" / "bench-client.json").write_text("{}")
    assert tool.main(["--write", "--root", str(root)]) == 2
    assert "bench-client.json is no result" in capsys.readouterr().err


def test_everything_shows_each_row_and_each_campaign(tool, root):
    measure(root, "bench-client", SYNC, SYNC | {"case": "send/odd", "anchor": None, "ratio": None})
    campaign = {"name": "t", "outcome": "passed", "seconds": 61.2, "figures": {"kills": "20"}}
    soak = FACTS | {"machine": MACHINE | {"python": "3.11.7"}, "campaigns": [campaign]}
    (root / "docs" / "results" / "soak.json").write_text(json.dumps(soak))
    shown = tool.BLOCKS["everything"](tool.read_results(root / "docs" / "results"))
    assert "| `send/odd` | 3,600 messages/s | | | |" in shown
    assert "| `t` | passed | 61 s | kills 20 |" in shown
    told = tool.BLOCKS["endurance"](tool.read_results(root / "docs" / "results"))
    assert "1 of 1 passed, 1.02 minutes in all. Measured on 2 cores" in told
    assert tool.BLOCKS["endurance"]({}) == ""
    assert shown.count("CPython 3.11.7. 2026-01-02, commit abc, with changes.") == 2


def test_movement_is_a_range_over_the_numbers_of_queues(tool):
    rows = [
        {"case": f"moves/CAPPED_HASH/join/{n}", "ours": n / 10, "anchor": n, "anchor_name": "AVG"}
        for n in (16, 64)
    ]
    table = tool.BLOCKS["movement"]({"bench-movement": {"rows": rows}})
    assert "| a member joins | 1.6 to 6.4 | | | 16.0 to 64.0 |" in table
    assert tool.BLOCKS["movement"]({}) == ""
