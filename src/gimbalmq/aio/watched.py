"""Whether a consumer on a loop lives, asked there or from another thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from gimbalmq.aio.membership import Membership
from gimbalmq.client.stats import Probe, resting_probe
from gimbalmq.errors import StateError
from gimbalmq.runtime.consumer_host import ConsumerHost

__all__ = ["Watched"]

_T = TypeVar("_T")


class Watched(ABC):
    """A consumer on a loop that can be asked how it is."""

    _membership: Membership

    @abstractmethod
    def _judged(self, host: ConsumerHost) -> Probe:
        """What a probe of the running consumer finds."""

    def probe(self) -> Probe:
        """Whether the consumer is ready, and what speaks against it; never raises.

        Does not wait: that the loop lives shows in the fact that it answers.
        """
        if self._membership.state != "running":
            return resting_probe(self._membership.state)
        try:
            return self._membership.ask(self._judged)
        except StateError as error:
            return Probe(False, False, (str(error),))

    def from_thread(self, question: Callable[[], _T], timeout_s: float = 2.0) -> _T:
        """Ask this consumer from a thread that is not its loop's: `from_thread(consumer.stats)`.

        Raises:
            StateError: it is not running.
            TimeoutError: its loop was busy for all that time.
        """
        return self._membership.ask_there(question, timeout_s)
