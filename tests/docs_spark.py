"""Runs the Spark examples of the documents in one process: its Java is started once for all.

Each program has a namespace of its own, and what it prints is handed back. All of them share one
folder and one Java, as those of a reader do who tries one after the other in a terminal; a session
that one has not stopped is there for the next.

    python tests/docs_spark.py      reads {"program": text} or {"command": [words]} line by line
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path

__all__ = ["SparkPrograms"]

#: For the Javas of all programs: none lives long enough to gain by more.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkPrograms:
    """The process that runs the programs; it is started by the first one."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._folder = folder
        self._variables = variables | {"JDK_JAVA_OPTIONS": QUICK_START}
        self._process: subprocess.Popen[str] | None = None

    def run(self, work: dict[str, object], *, timeout_s: float) -> str:
        """Run a program or a command, which must end well; gives what it printed."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        bound = threading.Timer(timeout_s, process.kill)
        bound.start()
        try:
            process.stdin.write(json.dumps(work) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                process.wait()
        finally:
            bound.cancel()
        assert line, f"ended before its time, or took more than {timeout_s:g} s:\n{self._logged()}"
        answer = json.loads(line)
        assert not answer["failure"], f"{answer['failure']}\n{answer['printed']}{self._logged()}"
        return str(answer["printed"])

    def stop(self) -> None:
        """End the process; its Java ends with it."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=60)
            finally:
                self._process.kill()
                self._process.wait()

    def _start(self) -> None:
        self.stop()
        with (self._folder / "logged.txt").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                cwd=self._folder,
                env=self._variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _logged(self) -> str:
        return (self._folder / "logged.txt").read_text("utf-8", errors="replace")[-4000:]


def main() -> None:
    """Run what comes in, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Java inherits standard output, and some sinks print there.
    os.dup2(2, 1)
    for line in sys.stdin:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            failure = _run(json.loads(line))
        answers.write(json.dumps({"printed": printed.getvalue(), "failure": failure}) + "\n")
        answers.flush()


def _run(work: dict[str, str | list[str]]) -> str:
    """Run one of them; gives what went wrong, as text."""
    try:
        if "command" in work:
            from gimbalmq.cli.main import main as command_line

            command_line(work["command"][1:])
        else:
            exec(compile(work["program"], "example.py", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        return f"exit code {ended.code}" if ended.code else ""
    except Exception:  # noqa: BLE001 - whatever an example raises is its failure
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    main()
