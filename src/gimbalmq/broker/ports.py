"""Ports of this machine for servers that may be restarted on the same address.

Decides which port a server gets, and keeps it for the cluster that it belongs to: while a slow
server has not yet begun to listen, or a killed one is to be restarted, its port looks free to
everybody else. So every process of a user claims its ports, by a locked file for each in a folder
of the user's own; the kernel gives the lock back when a process dies, however it dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gimbalmq.errors import EngineError

__all__ = ["PortClaims", "listen"]

#: Below the range from which Linux takes the local ports of outgoing connections, so that a
#: server that was stopped finds its port free when it is started again.
_RANGE: Final = range(20_000, 32_000)
_ATTEMPTS: Final = 500
_BACKLOG: Final = 1024


class PortClaims:
    """Ports that no other process of this user, and nobody else in this one, is given until `close`.

    A claim says nothing about who listens: its owner may start, kill and restart a server there.

        with PortClaims() as claims:
            port = claims.choose()
    """

    def __init__(self) -> None:
        #: The locked file of each port.
        self._held: dict[int, int] = {}

    def choose(self, *, also: Iterable[int] = ()) -> int:
        """Claim a port that is free together with its neighbours `port + n` for n in `also`.

        Raises:
            EngineError: none was found.
        """
        offsets = (0, *also)
        chance = random.SystemRandom()
        for _ in range(_ATTEMPTS):
            port = chance.choice(_RANGE)
            if self._claim_all([port + offset for offset in offsets]):
                return port
        raise EngineError(
            f"no free port was found between {_RANGE.start} and {_RANGE.stop} after {_ATTEMPTS} "
            "attempts: stop servers that are no longer needed"
        )

    def take(self, port: int, *, what: str, option: str) -> None:
        """Claim a port that the caller chose for `what` by the option of that name.

        Raises:
            EngineError: another process listens there, or another cluster has claimed it.
        """
        if not self._claim_all([port]):
            raise EngineError(
                f"port {port} for {what} is taken by another process or cluster: stop that, "
                f"or choose another port with {option} (0 means any free one)"
            )

    def keep(self, port: int) -> None:
        """Claim a port that the caller has by listening there.

        Where another cluster has claimed it, for another interface, that claim serves both.
        """
        descriptor = _lock(port)
        if descriptor is not None:
            self._held[port] = descriptor

    def release(self, port: int) -> None:
        """Let others have a port; harmless when it is not claimed."""
        descriptor = self._held.pop(port, None)
        if descriptor is not None:
            _unlock(port, descriptor)

    def close(self) -> None:
        """Let others have all of them."""
        for port in list(self._held):
            self.release(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _claim_all(self, ports: Iterable[int]) -> bool:
        """Claim all of them or none."""
        with contextlib.ExitStack() as undo:
            for port in ports:
                descriptor = _lock(port)
                if descriptor is None:
                    return False
                self._held[port] = descriptor
                undo.callback(self.release, port)
                if not _is_free(port):
                    return False
            undo.pop_all()
        return True


def listen(host: str, port: int, *, what: str, claims: PortClaims | None = None) -> socket.socket:
    """A socket that listens at host and port; port 0 means any free one.

    With `claims` the port stays claimed when the socket is closed, until they are.

    Raises:
        EngineError: the port is taken, or none is free.
    """
    if port:
        listener = _listen_at(host, port, what=what)
        if claims is not None:
            with contextlib.ExitStack() as undo:
                undo.callback(listener.close)
                claims.keep(port)
                undo.pop_all()
        return listener
    # Without claims of the caller's, the socket itself keeps others away as long as it is open.
    with PortClaims() if claims is None else contextlib.nullcontext(claims) as keeper:
        for _ in range(_ATTEMPTS):
            chosen = keeper.choose()
            try:
                return _listen_at(host, chosen, what=what)
            except EngineError as error:
                keeper.release(chosen)
                # Any other reason is the same for every port.
                if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
                    raise
    raise EngineError(
        f"{what} found no free port on {host} between {_RANGE.start} and {_RANGE.stop}: stop "
        "servers that are no longer needed"
    )


def _listen_at(host: str, port: int, *, what: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise EngineError(
            f"{what} cannot listen on {host}:{port} ({error.strerror or error}): {_remedy(error)}"
        ) from error
    return listener


def _remedy(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "stop what uses that port, or choose another one (0 means any free one)"
        case errno.EACCES:
            return "this user may not have that port: choose one above 1023"
        case _:
            return (
                "give an address of this machine to listen on, such as 127.0.0.1, or 0.0.0.0 for "
                "all of them; clients may be told another one (advertise)"
            )


def _is_free(port: int) -> bool:
    # On all interfaces, as RocketMQ may listen on all of them.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - bound for a moment, never listening
        except OSError:
            return False
    return True


def _folder() -> Path:
    """Where the files are: beside what others write, where nobody else may write."""
    return Path(tempfile.gettempdir()) / f"gimbalmq-ports-{os.getuid()}"


def _own_folder() -> Path:
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise EngineError(
            f"{folder} is not a folder that only this user may enter, as the claims of ports need "
            "it: remove it, or set TMPDIR to another folder"
        )
    return folder


def _lock(port: int) -> int | None:
    """The locked file of a port (closed by exec, as Python opens all files); None: it is claimed."""
    try:
        path = _own_folder() / str(port)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with contextlib.ExitStack() as undo:
                undo.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last owner may have removed it between our opening and our locking it.
                if _is_at(path, descriptor):
                    undo.pop_all()
                    return descriptor
    except BlockingIOError:
        return None
    except OSError as error:
        raise EngineError(
            f"port {port} cannot be claimed in {_folder()} ({error.strerror or error}): make that "
            "folder writable, or set TMPDIR to another one"
        ) from error


def _unlock(port: int, descriptor: int) -> None:
    path = _folder() / str(port)
    # A file that stays is in nobody's way.
    with contextlib.suppress(OSError):
        if _is_at(path, descriptor):
            path.unlink()
    # Closing alone would leave the lock to a process that was forked meanwhile.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file; whoever tidies /tmp may have removed it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
