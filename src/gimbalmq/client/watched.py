"""Whether a consumer lives, asked from outside: by probes of containers, and by monitors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future

from gimbalmq.client.membership import Membership
from gimbalmq.client.stats import Probe, resting_probe
from gimbalmq.errors import StateError
from gimbalmq.runtime.consumer_host import ConsumerHost

__all__ = ["Watched"]


class Watched(ABC):
    """A consumer on threads that can be asked how it is."""

    _membership: Membership

    @abstractmethod
    def _judged(self, host: ConsumerHost) -> Probe:
        """What a probe of the running consumer finds; on the engine thread."""

    def probe(self, timeout_s: float = 2.0) -> Probe:
        """Whether the consumer lives and is ready, and what speaks against it; never raises.

        For probes of containers: `live` is False when only a restart helps, `ready` is False
        while it does not take part in its group.

        Args:
            timeout_s: After this long without an answer of the client's own thread it is dead.
        """
        if self._membership.state != "running":
            return resting_probe(self._membership.state)
        answer: Future[Probe] = Future()
        try:
            self._membership.tell(lambda host: answer.set_result(self._judged(host)))
            return answer.result(timeout_s)
        except StateError as error:
            return Probe(False, False, (str(error),))
        except TimeoutError:
            why = f"the client's own thread has not answered for {timeout_s:g} s"
            return Probe(False, False, (why,), answered=False)
