from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture
def report(tmp_path):
    """Run pytest on the given source, apart from this session; gives its JUnit file."""

    def run(source, *arguments):
        (tmp_path / "test_inner.py").write_text("import pytest\n" + source)
        file = tmp_path / "reports" / "inner.xml"
        isolated = ["-c", "/dev/null", f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
        subprocess.run(
            [sys.executable, "-m", "pytest", f"--junitxml={file}", *isolated, *arguments, tmp_path],
            capture_output=True,
            check=False,
        )
        return file

    return run


def test_a_run_without_skips_passes(tool, report):
    file = report("def test_a(): pass")
    assert tool.main([str(file.parent)]) == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("@pytest.mark.skip(reason='no Java')\ndef test_a(): pass", "no Java"),
        ("def test_a(): pytest.skip('no network')", "no network"),
        ("pytest.importorskip('no_such_module')\ndef test_a(): pass", "no_such_module"),
        ("@pytest.mark.xfail(reason='later')\ndef test_a(): assert False", "later"),
    ],
    ids=["mark", "call", "module", "expected failure"],
)
@pytest.mark.parametrize("arguments", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_whatever_was_left_out_is_named(tool, report, capsys, source, reason, arguments):
    file = report(f"{source}\ndef test_b(): pass", *arguments)
    assert tool.main([str(file)]) == 1
    assert reason in capsys.readouterr().err


def test_a_run_without_tests_is_no_proof(tool, report, capsys):
    file = report("")
    assert tool.main([str(file)]) == 1
    assert "no test was run" in capsys.readouterr().err


def test_no_report_at_all_is_an_error(tool, tmp_path):
    assert tool.main([str(tmp_path)]) == 2
