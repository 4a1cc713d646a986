from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gimbalmq.errors import EngineError
from gimbalmq.spark import local_session, session
from gimbalmq.testing import jvm


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GIMBALMQ_CACHE", str(tmp_path / "cache"))


def fake_java(folder):
    """A Java that only says what it was called with."""
    java = folder / "a java"
    java.write_text('#!/bin/sh\necho "$@"\n')
    java.chmod(0o755)
    return java


def test_java_is_started_without_the_module_that_run_time_images_lack(monkeypatch, tmp_path):
    runtime = jvm.JavaRuntime(fake_java(tmp_path), 17)
    monkeypatch.setattr(jvm, "find_java", lambda: runtime)
    java = session._java_home() / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-opens=x"]
    answer = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "-Xmx1g a b --add-opens=x\n"


def test_the_files_for_spark_are_written_once(monkeypatch, tmp_path):
    monkeypatch.setattr(jvm, "find_java", lambda: jvm.JavaRuntime(Path("/x/java"), 17))
    written = session._java_home() / "bin" / "java"
    before = written.stat().st_ino
    assert (session._java_home() / "bin" / "java").stat().st_ino == before
    assert [path.name for path in written.parent.iterdir()] == ["java"]


def test_no_java_is_told_with_what_to_install(monkeypatch):
    def missing():
        raise EngineError("none")

    monkeypatch.setattr(jvm, "find_java", missing)
    with pytest.raises(EngineError, match=r'Spark needs Java 17 or newer.*"gimbalmq\[java\]"'):
        session._java_home()


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GIMBALMQ_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="Set GIMBALMQ_CACHE"):
        session._written("x", "y")


def test_the_environment_is_as_before_once_the_jvm_has_started(monkeypatch):
    monkeypatch.setenv("SET_BEFORE", "old")
    with session._environment({"SET_BEFORE": "new", "NOT_SET_BEFORE": "new"}):
        assert os.environ["SET_BEFORE"] == os.environ["NOT_SET_BEFORE"] == "new"
    assert os.environ["SET_BEFORE"] == "old"
    assert "NOT_SET_BEFORE" not in os.environ


def test_a_long_temporary_folder_keeps_spark_on_tcp(monkeypatch):
    setting = "spark.python.unix.domain.socket.enabled"
    monkeypatch.setattr(session.tempfile, "gettempdir", lambda: "/tmp")
    assert session._settings(2, "1g")[setting] == "true"
    monkeypatch.setattr(session.tempfile, "gettempdir", lambda: "/" + "x" * 80)
    assert session._settings(2, "1g")[setting] == "false"


def test_a_session_that_runs_is_used(spark):
    assert local_session("another", cores=7) is spark
    assert spark.sparkContext.master == "local[2]"


def test_the_session_has_the_settings_that_make_it_quick_and_quiet(spark):
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.ui.enabled") == "false"
    assert settings.get("spark.ui.showConsoleProgress") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert "log4j2.configurationFile" in settings.get("spark.driver.extraJavaOptions")
