"""What a client is called in a process that is one of several which run the same code.

Copies of one program would give their clients one name; whoever starts them numbers the processes.
"""

from __future__ import annotations

import msgspec

__all__ = ["name_process", "process_folder", "process_stem"]


class _Process(msgspec.Struct, frozen=True):
    number: int
    stem: str | None


_process: _Process | None = None


def name_process(number: int, stem: str | None = None) -> None:
    """Number this process, before any client is made in it.

    A client with a name gets the number behind it; one without takes `stem` and the number, or,
    without a stem, a name of its own as ever.
    """
    global _process  # noqa: PLW0603 - a property of the process
    _process = _Process(number, stem)


def process_stem(client_id: str | None) -> str | None:
    """The stem of a client's id in this process; None: one has to be made up.

    >>> process_stem("billing"), process_stem(None)
    ('billing', None)
    """
    if _process is None:
        return client_id
    stem = client_id or _process.stem
    return None if stem is None else f"{stem}-{_process.number}"


def process_folder(default: str) -> str:
    """The name of the folder of a client without a name."""
    return default if _process is None else f"{default}-{_process.number}"
