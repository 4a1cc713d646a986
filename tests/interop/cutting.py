"""Breaks the connections of a running process, as a network would, and leaves the process alone."""

import ctypes
import os
import re
import socket
from pathlib import Path

_PIDFD_GETFD = 438
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def _sockets_to(pid, ports):
    """Inodes of the TCP sockets of a process that lead to one of the ports."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[2].rpartition(":")[2], 16) in ports:
                inodes.add(fields[9])
    return inodes


def cut(pid, ports):
    """Shut down every connection from the process to the ports; returns how many there were."""
    inodes = _sockets_to(pid, ports)
    system = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    count = 0
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found = _SOCKET.fullmatch(str(entry.readlink()))
            except FileNotFoundError:
                continue  # closed meanwhile
            if found is None or found[1] not in inodes:
                continue
            number = system.syscall(_PIDFD_GETFD, handle, int(entry.name), 0)
            assert number >= 0, os.strerror(ctypes.get_errno())
            with socket.socket(fileno=number) as twin:
                twin.shutdown(socket.SHUT_RDWR)
            count += 1
    finally:
        os.close(handle)
    return count
