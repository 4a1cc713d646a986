from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gimbalmq.errors import EngineError
from gimbalmq.testing.cache import built_once, cache_folder


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GIMBALMQ_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_the_shared_cache_folder_of_the_user_is_next(monkeypatch, tmp_path):
    monkeypatch.delenv("GIMBALMQ_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gimbalmq"


def test_the_default_is_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("GIMBALMQ_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "gimbalmq"


def _build(entry: Path, build) -> Path:
    return built_once(entry, is_whole=Path.is_dir, build=build, what="a thing")


def test_an_entry_is_built_the_first_time_only(tmp_path):
    built = []

    def build(folder: Path) -> None:
        (folder / "file").write_text("x", encoding="utf-8")
        built.append(folder)

    entry = tmp_path / "deep" / "entry"
    assert _build(entry, build) == entry
    assert _build(entry, build) == entry
    assert (entry / "file").read_text(encoding="utf-8") == "x"
    assert len(built) == 1


def test_an_entry_that_is_not_whole_is_replaced(tmp_path):
    entry = tmp_path / "entry"
    entry.mkdir()
    (entry / "half").touch()
    built_once(
        entry,
        is_whole=lambda folder: (folder / "done").exists(),
        build=lambda folder: (folder / "done").touch(),
        what="a thing",
    )
    assert [path.name for path in entry.iterdir()] == ["done"]


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise EngineError("no network")

    with pytest.raises(EngineError, match="no network"):
        _build(tmp_path / "entry", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["entry.lock"]


def test_a_folder_that_cannot_be_written_is_named_with_the_variable(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"cannot be used.*GIMBALMQ_CACHE"):
        _build(tmp_path / "file" / "entry", lambda _: None)


def test_two_processes_that_ask_at_once_build_one_time(tmp_path):
    program = f"""
import sys, time
from pathlib import Path
from gimbalmq.testing.cache import built_once
def build(folder):
    with open({str(tmp_path / "log")!r}, "a") as log:
        log.write("built\\n")
    time.sleep(0.5)
built_once(Path({str(tmp_path / "entry")!r}), is_whole=Path.is_dir, build=build, what="a thing")
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert (tmp_path / "log").read_text(encoding="utf-8") == "built\n"
    assert sum("waiting for another process that prepares a thing" in text for text in errors) <= 1
