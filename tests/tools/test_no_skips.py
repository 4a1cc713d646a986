from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture
def report(tmp_path):
    """Run pytest on the given sources, apart from this session; gives its JUnit file."""

    def run(*sources, arguments=()):
        for number, source in enumerate(sources):
            (tmp_path / f"test_inner_{number}.py").write_text("import pytest\n" + source)
        file = tmp_path / "reports" / "inner.xml"
        isolated = ["-c", "/dev/null", f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
        subprocess.run(
            [sys.executable, "-m", "pytest", f"--junitxml={file}", *isolated, *arguments, tmp_path],
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            check=False,
        )
        return file

    return run


def test_a_run_without_skips_passes(tool, report):
    file = report("def test_a(): pass")
    assert tool.main([str(file.parent)]) == 0


LEFT_OUT = {
    "no Java": "@pytest.mark.skip(reason='no Java')\ndef test_a(): pass",
    "no network": "def test_a(): pytest.skip('no network')",
    "no_such_module": "pytest.importorskip('no_such_module')\ndef test_a(): pass",
    "later": "@pytest.mark.xfail(reason='later')\ndef test_a(): assert False",
}


@pytest.mark.parametrize(
    "arguments", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "xdist"]
)
def test_whatever_was_left_out_is_named(tool, report, capsys, arguments):
    file = report(*LEFT_OUT.values(), "def test_b(): pass", arguments=arguments)
    assert tool.main([str(file)]) == 1
    said = capsys.readouterr().err
    assert [reason for reason in LEFT_OUT if reason not in said] == []
    assert "4 left out" in said


def test_a_run_without_tests_is_no_proof(tool, report, capsys):
    file = report("")
    assert tool.main([str(file)]) == 1
    assert "no test was run" in capsys.readouterr().err


def test_no_report_at_all_is_an_error(tool, tmp_path):
    assert tool.main([str(tmp_path)]) == 2
