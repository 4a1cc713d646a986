from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROW = {"case": "a/b", "ours": 2.0, "anchor": 4.0, "anchor_name": "x", "ratio": 0.5, "unit": "s"}


@pytest.fixture
def bench(tool, tmp_path, monkeypatch):
    """A repository with the given benchmarks: name to what its main part does."""

    def make(**programs):
        (tmp_path / "bench").mkdir()
        for name, program in programs.items():
            source = f"import json, sys\nif __name__ == '__main__':\n    {program}\n"
            (tmp_path / "bench" / f"{name}.py").write_text(source)
        monkeypatch.setattr(tool, "_ROOT", tmp_path)
        return tmp_path

    return make


def printing(rows):
    return f"print(json.dumps(dict(machine={{}}, rows={rows!r}, arguments=sys.argv[1:])))"


def test_every_benchmark_with_a_main_part_is_run_and_shown(tool, bench, capsys):
    root = bench(one=printing([ROW]), two=printing([{**ROW, "case": "c/d"}]))
    (root / "bench" / "shared.py").write_text("raise SystemExit('no benchmark')")
    assert tool.main([]) == 0
    shown = capsys.readouterr().out
    assert "a/b" in shown
    assert "c/d" in shown


def test_names_choose_and_arguments_after_dashes_are_passed_on(tool, bench):
    root = bench(one=printing([ROW]), two="raise SystemExit('not asked for')")
    assert tool.main(["one", "--save", "--", "--quick"]) == 0
    kept = json.loads((root / "docs" / "results" / "bench-one.json").read_text())
    assert kept["arguments"] == ["--json", "--quick"]
    assert kept["rows"] == [ROW]
    assert kept["commit"]


def test_one_failing_benchmark_fails_the_command_but_not_the_others(tool, bench, capsys):
    bench(one="raise SystemExit(3)", two=printing([ROW]))
    assert tool.main([]) == 1
    captured = capsys.readouterr()
    assert "exit code 3" in captured.err
    assert "a/b" in captured.out


def test_output_in_another_form_is_named(tool, bench, capsys):
    bench(one="print('fast')")
    assert tool.main([]) == 1
    assert "not the agreed form" in capsys.readouterr().err


def test_an_unknown_name_is_refused_with_the_known_ones(tool, bench, capsys):
    bench(one=printing([ROW]))
    assert tool.main(["three"]) == 2
    assert "there are: one" in capsys.readouterr().err


def test_the_ratio_of_a_row_is_the_median_of_its_rounds_where_it_has_them(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    row = importlib.import_module("harness").Row
    assert row("a/b", 90.0, 100.0, "x", "s", "", (1.2, 1.1, 0.5)).ratio == 1.1
    assert row("a/b", 90.0, 100.0, "x", "s").ratio == 0.9
    assert row("a/b", 90.0, None, "x", "s").ratio is None
