"""Every error that the package raises on purpose.

The message of each says what failed, where, and what to do about it. `code` is the remoting
response code when a server refused, else None. `retryable` tells whether the same call may
succeed later without a change by the caller.

    GimbalError
    ├── ConfigurationError       an option, name or argument is wrong (also a ValueError)
    ├── StateError               called in the wrong order: before start, twice, after stop
    ├── AllocationError          a strategy cannot share out these queues (also a ValueError)
    ├── ProtocolError            bytes that are not the protocol: wrong server, corrupt data
    ├── TransportError           connect, read or write failed
    │   ├── UnreachableError     no connection could be made
    │   └── CallTimeoutError     no answer within the time allowed
    ├── BrokerError              a broker or name server answered with an error code
    │   ├── TopicNotFoundError   no route for the topic
    │   └── AccessDeniedError    the keys are wrong, missing, or not allowed to do this
    ├── SendError                every attempt to send failed; `attempts` lists them
    ├── OffsetError              the wanted offset is not stored, or no longer
    └── EngineError              a test or demo cluster could not be fetched or started
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AccessDeniedError",
    "AllocationError",
    "BrokerError",
    "CallTimeoutError",
    "ConfigurationError",
    "EngineError",
    "GimbalError",
    "OffsetError",
    "ProtocolError",
    "SendError",
    "StateError",
    "TopicNotFoundError",
    "TransportError",
    "UnreachableError",
]

#: Response codes after which the same request may succeed a moment later
#: (SYSTEM_ERROR, SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, FLOW_CONTROL, GO_AWAY).
_TRANSIENT_CODES: Final = frozenset({1, 2, 14, 215, 1500})


class GimbalError(Exception):
    """Root of the tree.

    >>> error = GimbalError("broker-a answered 2 (busy)", code=2, retryable=True)
    >>> error.code, error.retryable
    (2, True)
    """

    def __init__(self, message: str, *, code: int | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class ConfigurationError(GimbalError, ValueError):
    """An option, a name or an argument cannot be used."""


class StateError(GimbalError):
    """The object is not in the state that the call needs."""


class AllocationError(GimbalError, ValueError):
    """A strategy cannot share these queues among these members."""


class ProtocolError(GimbalError):
    """The peer sent bytes that are not the remoting protocol."""


class TransportError(GimbalError):
    """The connection could not be made, or broke."""

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message, retryable=True)
        self.address = address


class UnreachableError(TransportError):
    """No connection could be made; `reason` leaves out advice that is for brokers' addresses."""

    def __init__(self, reason: str, advice: str = "", *, address: str = "") -> None:
        super().__init__(f"{reason}; {advice}" if advice else reason, address=address)
        self.reason = reason


class CallTimeoutError(TransportError):
    """The peer did not answer in time."""


class BrokerError(GimbalError):
    """A broker or name server answered with an error code; `remark` holds its words."""

    def __init__(self, message: str, *, code: int, address: str = "", remark: str = "") -> None:
        super().__init__(message, code=code, retryable=code in _TRANSIENT_CODES)
        self.address = address
        self.remark = remark


class TopicNotFoundError(BrokerError):
    """The name servers know no route for the topic."""


class AccessDeniedError(BrokerError):
    """A broker refused the keys, or what they ask for; the same request will not succeed later."""

    def __init__(self, message: str, *, code: int, address: str = "", remark: str = "") -> None:
        super().__init__(message, code=code, address=address, remark=remark)
        # 4.x answers with a code that otherwise means "try again".
        self.retryable = False


class SendError(GimbalError):
    """No attempt to send succeeded; `attempts` holds one line per broker tried.

    `code` is that of the last refusal, None when the last attempt got no answer.
    """

    def __init__(
        self, message: str, *, attempts: tuple[str, ...] = (), code: int | None = None
    ) -> None:
        super().__init__(message, code=code, retryable=code is None or code in _TRANSIENT_CODES)
        self.attempts = attempts


class OffsetError(GimbalError):
    """An offset could not be found, or points at data that is gone."""


class EngineError(GimbalError):
    """A RocketMQ cluster for tests and demos could not be fetched, started or stopped."""
