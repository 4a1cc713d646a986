"""Entry point of `gimbalmq`: runs the command tree and turns its outcome into an exit code.

0 fine, 1 a finding, 2 wrong use or failure, 130 stopped by Ctrl-C. Imports nothing that is
optional, so that a missing extra gives a sentence instead of a traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from gimbalmq.errors import GimbalError

__all__ = ["EXIT_FAILURE", "EXIT_FINDING", "main"]

EXIT_FINDING = 1
EXIT_FAILURE = 2
EXIT_INTERRUPTED = 130

#: Which extra brings a module that a command may need.
_EXTRAS = {"click": "cli", "rich": "cli", "pyspark": "spark", "pyarrow": "spark", "numpy": "spark"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        return _run_tree(arguments)
    except GimbalError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        return _fail(
            f"this command needs '{missing}', which is not installed. "
            f'Install it with: pip install "gimbalmq[{_EXTRAS[missing]}]"'
        )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - Python's own code would be 1, which means a finding
        if isinstance(error, OSError) and error.errno is not None:
            return _fail(_refused(error))
        traceback.print_exc()
        return EXIT_FAILURE


def _run_tree(arguments: Sequence[str] | None) -> int:
    import click

    from gimbalmq.cli.root import OutputClosedError, root

    try:
        outcome = root.main(arguments, prog_name="gimbalmq", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return EXIT_FAILURE
    except click.Abort:
        return EXIT_INTERRUPTED
    except OutputClosedError:
        # What is still to be flushed would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    # click returns the code given to ctx.exit(), else what the command returned.
    return outcome if isinstance(outcome, int) else 0


def _refused(error: OSError) -> str:
    """What this machine refused, for people: no place in our code would help them."""
    what = "" if error.filename is None else f" for '{error.filename}'"
    return (
        f"{error.strerror}{what}, says the system: look at the files and folders that this command "
        "uses, and at where its output goes"
    )


def _fail(message: str) -> int:
    print(f"gimbalmq: {message}", file=sys.stderr)
    return EXIT_FAILURE
