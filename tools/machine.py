"""Facts about this machine and this commit, for results that are kept.

Must not record who or where: no host name, no user, no path.
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["commit", "machine", "now"]


def machine() -> dict[str, object]:
    """Processor, cores, memory, system and Python version."""
    return {
        "processor": _field(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit(root: Path) -> str:
    """The commit that is checked out, with "+changes" when files differ from it."""
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return "unknown"
    return f"{head}+changes" if _git(root, "status", "--porcelain") else head


def now() -> str:
    """The time in UTC to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _git(root: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _field(path: Path, name: str) -> str:
    if not path.exists():
        return ""
    for line in path.read_text("utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _memory_bytes() -> int | None:
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
