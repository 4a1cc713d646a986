"""The folder of fetched jars and compiled peers, shared by every process of the user.

Decides where it is and how entries get in: built aside, then renamed, so that an entry is either
whole or absent; one process builds while the others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gimbalmq.errors import EngineError

__all__ = ["built_once", "cache_folder", "say"]


def cache_folder() -> Path:
    """`GIMBALMQ_CACHE`, else `gimbalmq` in the user's cache folder. Not created by this call."""
    chosen = os.environ.get("GIMBALMQ_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    base = Path(shared) if shared else Path.home() / ".cache"
    return base / "gimbalmq"


def say(line: str) -> None:
    """Tell the user about work that takes a while; never on stdout, which may carry JSON."""
    print(f"gimbalmq: {line}", file=sys.stderr, flush=True)  # noqa: T201 - a notice, not a debug print


def built_once(
    entry: Path, *, is_whole: Callable[[Path], bool], build: Callable[[Path], None], what: str
) -> Path:
    """`entry`, a folder, made by `build(folder)` unless it is there and whole.

    `build` gets an empty folder beside the final place; when it raises, nothing is left behind.
    Two processes that ask at once build it one time.
    """
    if is_whole(entry):
        return entry
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with _locked(entry.with_name(f"{entry.name}.lock"), what):
            if not is_whole(entry):
                _build(entry, build)
    except OSError as error:
        raise EngineError(
            f"the cache folder {entry.parent} cannot be used: {error}. "
            "Set GIMBALMQ_CACHE to a folder that can be written"
        ) from error
    return entry


def _build(entry: Path, build: Callable[[Path], None]) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    try:
        build(aside)
        aside.chmod(0o755)
        if entry.exists():
            # Not whole: an interrupted clean-up, or files that were edited by hand.
            shutil.rmtree(entry)
        aside.rename(entry)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, what: str) -> Iterator[None]:
    with path.open("a", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that prepares {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
