"""RocketMQ's own command line, `mqadmin`, against any name server, as a function.

Decides how it is called and what of its output is an answer. Several commands share one Java
process, which takes seconds to start.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gimbalmq.errors import EngineError
from gimbalmq.testing.classes import class_path
from gimbalmq.testing.jars import VERSIONS
from gimbalmq.testing.jvm import find_java
from gimbalmq.testing.processes import QUICK_START_FLAGS
from gimbalmq.testing.servers import lay_out_home

__all__ = ["mqadmin", "mqadmin_all"]

#: Begins the output of each command; see `java/Tool.java`.
_MARK: Final = "\x1fcommand\x1f\n"


def mqadmin(
    nameserver: str, *arguments: str, version: str = VERSIONS[0], timeout_s: float = 60.0
) -> str:
    """Run one command (`topicList`, `clusterList`, ...) and return what it prints.

    Takes about four seconds; `JavaPeer.admin()` answers many questions much faster.

    Raises:
        EngineError: it failed or took too long; with what it said.
    """
    return mqadmin_all(nameserver, [arguments], version=version, timeout_s=timeout_s)[0]


def mqadmin_all(
    nameserver: str,
    commands: Sequence[Sequence[str]],
    *,
    version: str = VERSIONS[0],
    timeout_s: float = 60.0,
) -> list[str]:
    """Run commands one after the other in one Java process; what each of them prints.

    Raises:
        EngineError: one failed, or all together took too long.
    """
    arguments = [text for command in commands for text in (str(len(command)), *command)]
    # Some commands write files into the current folder.
    with tempfile.TemporaryDirectory(prefix="gimbalmq-mqadmin-") as folder:
        command = [
            *(str(find_java().java), "-Xmx256m", *QUICK_START_FLAGS),
            *(f"-Duser.home={folder}", f"-Drocketmq.namesrv.addr={nameserver}"),
            *("-cp", class_path(version), "gimbalmq.peer.Tool", *arguments),
        ]
        home = lay_out_home(Path(folder))
        try:
            answer = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env={"ROCKETMQ_HOME": str(home)},
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            names = ", ".join(one[0] for one in commands)
            raise EngineError(f"mqadmin {names} took more than {timeout_s:g} s") from error
    _, *printed = answer.stdout.split(_MARK)
    if answer.returncode or len(printed) != len(commands):
        failed = " ".join(commands[max(len(printed) - 1, 0)])
        raise EngineError(
            f"mqadmin {failed} ended with code {answer.returncode}: {answer.stderr[-1000:]}"
        )
    return [_without_noise(text) for text in printed]


def _without_noise(text: str) -> str:
    """Without the words of RocketMQ's own log set-up."""
    return "".join(line for line in text.splitlines(keepends=True) if "|-" not in line)
