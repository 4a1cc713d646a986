"""What the single-owner parts of the runtime need from whatever runs them.

`ClientInstance` and the machines never touch threads, sockets or clocks: they are called by a
driver, on its thread or in its virtual time, and ask it for calls, timers and the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Flow, Instant
from gimbalmq.wire.command import Command

__all__ = ["CONNECT_TIMEOUT_S", "Driver", "DriverClient", "Timer"]

#: How long a connection may take to be made, as in Java; but no longer than half of the time of
#: whoever waits for it, so that a broker that is gone without a word leaves time to try another.
CONNECT_TIMEOUT_S: Final = 3.0


class Timer(Protocol):
    """A pending call; `cancel` may be called at any time, also after it ran."""

    def cancel(self) -> None:
        """Do not run it."""


class DriverClient(Protocol):
    """Who a driver reports to."""

    def on_connected(self, address: str) -> None:
        """A connection to the address was made."""

    def on_disconnected(self, address: str, error: GimbalError) -> None:
        """The connection to the address is gone."""

    def on_request(self, address: str, request: Command) -> Command | None:
        """The server asks; returns the answer, or None when there is none, or `answer` sends it."""


class Driver(Protocol):
    """Calls, flows, timers and time; everything but `post` is for the owner only."""

    def now(self) -> Instant:
        """Read the clocks."""

    def monotonic(self) -> float:
        """Read the clock that never jumps: `now().at_s`, for those who ask all the time."""

    def post(self, action: Callable[[], None]) -> None:
        """Run something on the owner's side; may be called from any thread."""

    def call(
        self,
        address: str,
        command: Command,
        timeout_s: float,
        done: Callable[[Command | GimbalError], None],
    ) -> Timer | None:
        """Send a request; `done` gets the answer or the error, later.

        What is returned, if anything, forgets the request when it is cancelled.
        """

    def notify(self, address: str, command: Command) -> None:
        """Send a one-way request; failures are reported as a lost connection only."""

    def spawn(self, flow: Flow[Any], done: Callable[[Any], None]) -> None:
        """Run a flow; `done` gets its result, or the `GimbalError` it ended with."""

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run something after a while."""

    def answer(self, address: str, response: Command) -> None:
        """Send a late answer to a request of a server, if its connection is still there."""

    def disconnect(self, address: str) -> None:
        """Close the connection to an address that is no longer needed."""
