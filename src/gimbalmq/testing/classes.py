"""Compiles the Java sources of this package against a RocketMQ version, once, into the cache."""

from __future__ import annotations

import hashlib
import subprocess
from importlib.resources import files
from pathlib import Path

from gimbalmq.errors import EngineError
from gimbalmq.testing.cache import built_once, cache_folder
from gimbalmq.testing.jars import compiler_bundle, fetch, rocketmq_bundle
from gimbalmq.testing.jvm import LEAST_JAVA, JavaRuntime, find_java

__all__ = ["class_path"]


def class_path(version: str) -> str:
    """The Java class path of RocketMQ `version` and of our peers; fetches and compiles as needed."""
    lib = fetch(rocketmq_bundle(version))
    sources = _sources()
    digest = hashlib.sha256()
    for name, text in sources.items():
        digest.update(f"{name}\0{text}\0".encode())
    folder = built_once(
        cache_folder() / "peers" / f"{version}-{digest.hexdigest()[:16]}",
        is_whole=Path.is_dir,
        build=lambda aside: _compile(find_java(), sources, lib, aside),
        what=f"the Java peers for {version}",
    )
    return f"{folder}:{lib}/*"


def _sources() -> dict[str, str]:
    folder = files("gimbalmq.testing").joinpath("java")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".java"))
    return {name: folder.joinpath(name).read_text(encoding="utf-8") for name in names}


def _compile(runtime: JavaRuntime, sources: dict[str, str], lib: Path, folder: Path) -> None:
    written = []
    for name, text in sources.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    command = [*_compiler(runtime), "-nowarn", "-d", str(folder), "-cp", _jar_list(lib)]
    answer = subprocess.run(
        [*command, *map(str, written)], capture_output=True, text=True, timeout=300, check=False
    )
    if answer.returncode:
        raise EngineError(
            f"the Java peers do not compile with {command[0]}: {(answer.stderr + answer.stdout)[-2000:]}"
        )
    for path in written:
        path.unlink()


def _compiler(runtime: JavaRuntime) -> list[str]:
    if runtime.compiler is not None:
        return [str(runtime.compiler), "-proc:none", "--release", str(LEAST_JAVA)]
    (jar,) = fetch(compiler_bundle()).glob("ecj-*.jar")
    # Not --release: that needs a file which run-time images leave out.
    return [str(runtime.java), "-jar", str(jar), "-proc:none", f"-{LEAST_JAVA}"]


def _jar_list(lib: Path) -> str:
    # Spelt out: the Eclipse compiler does not know `*` in a class path.
    return ":".join(str(path) for path in sorted(lib.glob("*.jar")))
