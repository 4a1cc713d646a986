"""Runs the command line against a cluster and keeps what it said, and looks at members."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from gimbalmq.cli.main import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


def run(cluster, *arguments: str) -> Said:
    """What a shell would see of a command; `cluster` None names no name server."""
    where = () if cluster is None else ("--nameserver", cluster.nameserver)
    # Some commands write bytes, which needs what is under the text.
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*arguments, *where])
        except SystemExit as end:
            code = end.code
    return Said(code, out.buffer.getvalue().decode(), err.getvalue())


def owned(member, *topics):
    """The queues of these topics that a member has."""
    return {queue for queue in member.assignment() if queue.topic in topics}
