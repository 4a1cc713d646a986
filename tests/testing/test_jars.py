from __future__ import annotations

from pathlib import Path

import pytest

from gimbalmq.errors import ConfigurationError, EngineError
from gimbalmq.testing import jars
from gimbalmq.testing.jars import Bundle, compiler_bundle, fetch, rocketmq_bundle

BUNDLE = Bundle("thing", "1.0", (("org.example", "part"),), 1)

#: Stands in for Maven: notes that it ran, then writes the jar that it was asked for.
GOOD_MAVEN = """#!/bin/sh
echo ran >> "$0.log"
for word in "$@"; do case "$word" in -DoutputDirectory=*) out=${word#*=};; esac; done
mkdir -p "$out" && printf jar > "$out/part-1.0.jar" && printf jar > "$out/needed-2.jar"
"""
BAD_MAVEN = "#!/bin/sh\necho 'Unknown host'\nexit 1\n"
IDLE_MAVEN = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """An empty cache, no PySpark, and a folder on the path where a test puts its `mvn`."""
    monkeypatch.setenv("GIMBALMQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_ivy_jar", lambda: None)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    # /usr/bin may hold a real Maven: ours must be the one that is found, or none.
    found = folder / "mvn"
    monkeypatch.setattr(jars.shutil, "which", lambda name: str(found) if found.exists() else None)

    def install(script: str) -> Path:
        found.write_text(script, encoding="utf-8")
        found.chmod(0o755)
        return found.with_name("mvn.log")

    return install


def test_a_bundle_is_downloaded_once_and_found_again(tools, capsys):
    log = tools(GOOD_MAVEN)
    lib = fetch(BUNDLE)
    assert sorted(path.name for path in lib.iterdir()) == ["needed-2.jar", "part-1.0.jar"]
    assert fetch(BUNDLE) == lib
    assert log.read_text(encoding="utf-8") == "ran\n"
    told = capsys.readouterr()
    assert told.out == ""
    assert "downloading thing 1.0 (about 1 MB, once) by Maven" in told.err


@pytest.mark.parametrize("damage", ["removed", "shortened", "altered", "added"])
def test_a_damaged_bundle_is_downloaded_again(tools, damage):
    log = tools(GOOD_MAVEN)
    jar = fetch(BUNDLE) / "needed-2.jar"
    match damage:
        case "removed":
            jar.unlink()
        case "shortened":
            jar.write_text("j", encoding="utf-8")
        case "altered":
            jar.write_text("raj", encoding="utf-8")
        case "added":
            jar.with_name("stranger.jar").touch()
    assert (fetch(BUNDLE) / "needed-2.jar").read_text(encoding="utf-8") == "jar"
    assert log.read_text(encoding="utf-8") == "ran\nran\n"


def test_a_failed_download_says_what_the_tool_said_and_leaves_nothing(tools, tmp_path):
    tools(BAD_MAVEN)
    with pytest.raises(
        EngineError, match=r"is the network reachable.*Maven: exit code 1: Unknown host"
    ):
        fetch(BUNDLE)
    assert [path.name for path in (tmp_path / "cache" / "thing").iterdir()] == ["1.0.lock"]


def test_a_tool_that_brings_nothing_is_a_failure(tools):
    tools(IDLE_MAVEN)
    with pytest.raises(EngineError, match=r"part-1\.0\.jar is missing after the download"):
        fetch(BUNDLE)


def test_without_a_tool_the_error_says_what_to_install(tools):
    with pytest.raises(EngineError, match=r'install Maven.*pip install "gimbalmq\[spark\]"'):
        fetch(BUNDLE)


def test_ivy_is_tried_when_maven_fails_and_both_are_heard(tools, monkeypatch, capsys):
    tools(BAD_MAVEN)
    monkeypatch.setattr(jars, "_ivy_jar", lambda: Path("ivy.jar"))

    def by_ivy(ivy: Path, bundle: Bundle, folder: Path) -> None:
        (folder / "lib").mkdir()
        (folder / "lib" / "part-1.0.jar").touch()

    monkeypatch.setattr(jars, "_by_ivy", by_ivy)
    assert (fetch(BUNDLE) / "part-1.0.jar").exists()
    assert "Maven failed: exit code 1: Unknown host" in capsys.readouterr().err


def test_the_ivy_of_an_installed_pyspark_is_found_without_importing_it():
    pytest.importorskip("pyspark")
    jar = jars._ivy_jar()
    assert jar is not None
    assert jar.is_file()


def test_an_unsupported_version_is_refused():
    with pytest.raises(ConfigurationError, match=r"choose 5\.5\.0 or 4\.9\.5"):
        rocketmq_bundle("4.9.8")


def test_the_benchmark_programs_come_with_the_newest_version_only():
    newest = {artifact for _, artifact in rocketmq_bundle("5.5.0").artifacts}
    oldest = {artifact for _, artifact in rocketmq_bundle("4.9.5").artifacts}
    assert newest - oldest == {"rocketmq-example"}


def test_the_compiler_is_one_jar():
    assert compiler_bundle().artifacts == (("org.eclipse.jdt", "ecj"),)
