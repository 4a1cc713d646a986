"""Keeps an instance's name servers up to date with the address server.

Asking waits, so it is done on a thread of its own, for as long as the question takes; the list is
changed on the driver's side. A question that fails changes nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from gimbalmq.errors import GimbalError, StateError
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.transport.nameservers import ADDRESS_SERVER_INTERVAL_S

__all__ = ["NameServerRefresh"]


class NameServerRefresh:
    """Asks every `interval_s`, from the first interval on; made on the driver's side."""

    def __init__(
        self,
        instance: ClientInstance,
        ask: Callable[[], tuple[str, ...]],
        interval_s: float = ADDRESS_SERVER_INTERVAL_S,
    ) -> None:
        self._instance = instance
        self._ask = ask
        self._interval_s = interval_s
        self._plan()

    def _plan(self) -> None:
        self._instance.driver.call_later(self._interval_s, self._start)

    def _start(self) -> None:
        threading.Thread(target=self._fetch, name="gimbalmq-address-server", daemon=True).start()

    def _fetch(self) -> None:
        outcome: tuple[str, ...] | GimbalError
        try:
            outcome = self._ask()
        except GimbalError as error:
            outcome = error
        # The client may have stopped in the meantime.
        with contextlib.suppress(StateError):
            self._instance.driver.post(lambda: self._take(outcome))

    def _take(self, outcome: tuple[str, ...] | GimbalError) -> None:
        if isinstance(outcome, GimbalError):
            self._instance.warn("address server", f"the name servers stay as they are: {outcome}")
        else:
            self._instance.nameservers.replace(outcome)
        self._plan()
