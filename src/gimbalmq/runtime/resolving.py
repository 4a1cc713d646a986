"""Looks the names of hosts up without keeping a driver waiting.

A resolver may take many seconds, in which heartbeats, locks and time limits go on. Each name has a
thread of its own for as long as it is asked for; whoever asks for it meanwhile gets the same answer.
Nothing is kept: that is for the system's resolver, which knows how long an answer holds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from gimbalmq.errors import GimbalError, StateError
from gimbalmq.transport.address import Where, resolve

__all__ = ["Resolver"]

#: Gets the place that a name stands for, or the reason why none is known.
Resolved = Callable[[Where | GimbalError], None]


class Resolver:
    """Asks for names; all but the asking is done on the owner's side, which `post` leads to."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._asking: dict[str, list[Resolved]] = {}

    def look_up(self, address: str, done: Resolved) -> None:
        """Find out where an address is; `done` is called later, unless the owner has stopped."""
        waiting = self._asking.get(address)
        if waiting is not None:
            waiting.append(done)
            return
        self._asking[address] = [done]
        threading.Thread(
            target=self._ask, args=(address,), name="gimbalmq-resolver", daemon=True
        ).start()

    def _ask(self, address: str) -> None:
        found: Where | GimbalError
        try:
            found = resolve(address)
        except GimbalError as error:
            found = error
        with contextlib.suppress(StateError):  # nobody is left who wants to know
            self._post(lambda: self._tell(address, found))

    def _tell(self, address: str, found: Where | GimbalError) -> None:
        for done in self._asking.pop(address):
            done(found)
