"""Fetches Java libraries by their Maven coordinates, once, into the cache.

Decides which files make up a RocketMQ of a version and by which tool they are fetched: Maven when
it is installed, else the Ivy that PySpark ships. Both resolve dependencies and check the
published checksums; where they look is their configuration, not ours.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from gimbalmq.errors import ConfigurationError, EngineError
from gimbalmq.testing.cache import built_once, cache_folder, say
from gimbalmq.testing.jvm import JavaRuntime, find_java

__all__ = ["VERSIONS", "Bundle", "Route", "compiler_bundle", "fetch", "rocketmq_bundle"]

#: Versions whose every part is published and that the tests run against, newest first.
VERSIONS: Final = ("5.5.0", "4.9.5")

Route = Literal["auto", "maven", "ivy"]

_GROUP: Final = "org.apache.rocketmq"
_FETCH_LIMIT_S: Final = 1800
_MANIFEST: Final = "manifest.json"


class Bundle(msgspec.Struct, frozen=True):
    """Artifacts that are fetched together with all they need."""

    name: str
    version: str
    artifacts: tuple[tuple[str, str], ...]
    size_mb: int


class _File(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True):
    """What was fetched; the artifacts are kept so that a changed list is fetched anew."""

    artifacts: tuple[tuple[str, str], ...]
    files: dict[str, _File]


def rocketmq_bundle(version: str) -> Bundle:
    """The servers, the tools and the client of Apache RocketMQ.

    >>> rocketmq_bundle("4.9.5").artifacts[0]
    ('org.apache.rocketmq', 'rocketmq-namesrv')
    """
    if version not in VERSIONS:
        raise ConfigurationError(
            f"Apache RocketMQ {version} is not supported here: choose {' or '.join(VERSIONS)} "
            "(some other releases were published without all their parts)"
        )
    names = ["rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools", "rocketmq-client"]
    if not version.startswith("4."):
        # Holds the published benchmark programs.
        names.append("rocketmq-example")
    size_mb = 28 if version.startswith("4.") else 96
    return Bundle("rocketmq", version, tuple((_GROUP, name) for name in names), size_mb)


def compiler_bundle() -> Bundle:
    """The Eclipse compiler, for a Java that has none."""
    return Bundle("ecj", "3.42.0", (("org.eclipse.jdt", "ecj"),), 3)


def fetch(bundle: Bundle, *, route: Route = "auto") -> Path:
    """The folder that holds the bundle's jars; downloads them the first time.

    Raises EngineError when no tool can fetch them, with the last lines that each one said.
    """
    entry = cache_folder() / bundle.name / bundle.version
    built_once(
        entry,
        is_whole=lambda folder: _is_whole(folder, bundle),
        build=lambda folder: _download(bundle, folder, route),
        what=f"{bundle.name} {bundle.version}",
    )
    return entry / "lib"


def _is_whole(folder: Path, bundle: Bundle) -> bool:
    try:
        manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=_Manifest)
    except (OSError, msgspec.MsgspecError):
        return False
    return manifest.artifacts == bundle.artifacts and _listing(folder / "lib") == manifest.files


def _listing(lib: Path) -> dict[str, _File]:
    listing = {}
    for path in sorted(lib.glob("*.jar")):
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        listing[path.name] = _File(path.stat().st_size, digest)
    return listing


def _download(bundle: Bundle, folder: Path, route: Route) -> None:
    ways: dict[str, Callable[[Bundle, Path], None]] = {}
    maven, ivy = shutil.which("mvn"), _ivy_jar()
    if maven is not None and route in {"auto", "maven"}:
        ways["Maven"] = lambda *where: _by_maven(maven, *where)
    if ivy is not None and route in {"auto", "ivy"}:
        ways["Ivy"] = lambda *where: _by_ivy(ivy, *where)
    if not ways:
        raise EngineError(
            f"{bundle.name} {bundle.version} must be downloaded, and there is neither Maven nor PySpark's Ivy "
            'to do it: install Maven (mvn on PATH), or: pip install "gimbalmq[spark]"'
        )
    failures = []
    for name, way in ways.items():
        say(
            f"downloading {bundle.name} {bundle.version} (about {bundle.size_mb} MB, once) by {name} "
            f"to {folder.parent}"
        )
        begun = time.monotonic()
        try:
            way(bundle, folder)
            _write_manifest(bundle, folder)
        except EngineError as error:
            say(f"{name} failed: {error}")
            failures.append(f"{name}: {error}")
            shutil.rmtree(folder / "lib", ignore_errors=True)
        else:
            say(f"downloaded {bundle.name} {bundle.version} in {time.monotonic() - begun:.0f} s")
            return
    raise EngineError(
        f"{bundle.name} {bundle.version} could not be downloaded; is the network reachable from here, "
        f"and does it need a proxy or a mirror (Maven: settings.xml, Ivy: GIMBALMQ_IVY_SETTINGS)? {' | '.join(failures)}"
    )


def _write_manifest(bundle: Bundle, folder: Path) -> None:
    listing = _listing(folder / "lib")
    for _, artifact in bundle.artifacts:
        if f"{artifact}-{bundle.version}.jar" not in listing:
            raise EngineError(f"{artifact}-{bundle.version}.jar is missing after the download")
    manifest = _Manifest(bundle.artifacts, listing)
    (folder / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))


def _by_maven(maven: str, bundle: Bundle, folder: Path) -> None:
    listed = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{bundle.version}</version></dependency>"
        for group, artifact in bundle.artifacts
    )
    pom = folder / "pom.xml"
    pom.write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>gimbalmq</groupId>"
        f"<artifactId>{bundle.name}</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{listed}\n</dependencies></project>\n",
        encoding="utf-8",
    )
    goal = "dependency:copy-dependencies"
    settings = ["-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"]
    _run([maven, "-q", "-B", "-f", str(pom), goal, *settings])
    pom.unlink()


def _by_ivy(ivy: Path, bundle: Bundle, folder: Path) -> None:
    runtime: JavaRuntime = find_java()
    listed = "\n".join(
        f'<dependency org="{group}" name="{artifact}" rev="{bundle.version}" conf="default->default"/>'
        for group, artifact in bundle.artifacts
    )
    description, scratch = folder / "ivy.xml", folder / "ivy-cache"
    description.write_text(
        f'<ivy-module version="2.0"><info organisation="gimbalmq" module="{bundle.name}"/>\n'
        f"<dependencies>\n{listed}\n</dependencies></ivy-module>\n",
        encoding="utf-8",
    )
    settings = os.environ.get("GIMBALMQ_IVY_SETTINGS")
    pattern = f"{folder / 'lib'}/[artifact]-[revision](-[classifier]).[ext]"
    _run(
        [
            *(str(runtime.java), *runtime.network_flags(), "-jar", str(ivy)),
            *(("-settings", settings) if settings else ()),
            *("-ivy", str(description), "-cache", str(scratch)),
            *("-retrieve", pattern, "-types", "jar", "bundle", "-warn"),
        ]
    )
    description.unlink()
    shutil.rmtree(scratch)


def _ivy_jar() -> Path | None:
    """The Ivy inside an installed PySpark, found without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("jars/ivy-*.jar"))), None)


def _run(command: list[str]) -> None:
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"gave up after {_FETCH_LIMIT_S} s: {command[0]}") from error
    if answer.returncode:
        lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
        raise EngineError(f"exit code {answer.returncode}: {' / '.join(lines[-6:])[-1500:]}")
