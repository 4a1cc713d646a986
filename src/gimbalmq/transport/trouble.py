"""What can be wrong with a connection, in words: what happened, and what to do about it."""

from __future__ import annotations

from typing import Final

from gimbalmq.errors import ProtocolError, TransportError, UnreachableError

__all__ = ["broken", "closed", "unreachable"]

#: Where RocketMQ's gRPC proxy listens unless told otherwise.
_PROXY_PORT: Final = ":8081"
_PROXY_ADVICE: Final = (
    "8081 is as a rule the port of RocketMQ's gRPC proxy, which this client cannot use: give the "
    "name server's address (port 9876)"
)


def unreachable(address: str, reason: object, target: str = "") -> UnreachableError:
    """No connection was made; `target` is where the address was led to, if elsewhere."""
    where = f"{address} (by address_map: {target})" if target not in {"", address} else address
    text = f"cannot connect to {where}: {reason}"
    if address.endswith(_PROXY_PORT):
        return UnreachableError(f"{text}; {_PROXY_ADVICE}", address=address)
    if where != address:
        return UnreachableError(
            text, "is it running, and does address_map lead to the right place?", address=address
        )
    return UnreachableError(
        text,
        "is it running, and is the address reachable from here? If a broker advertises an "
        f"address that is not, say where it is with address_map={{'{address}': 'host:port'}}, or "
        "set its brokerIP1",
        address=address,
    )


def closed(address: str, *, http2: bool, tls: bool, talked: bool) -> TransportError | ProtocolError:
    """The server closed the connection; `talked`: after it had sent something."""
    if http2:
        return ProtocolError(
            f"{address} speaks HTTP/2: it is a gRPC proxy's port, which this client cannot use; "
            "give the name server's address (port 9876)"
        )
    if talked:
        return TransportError(f"{address} closed the connection", address=address)
    advice = "it may be stopping, or not be a RocketMQ remoting port"
    if address.endswith(_PROXY_PORT):
        advice = _PROXY_ADVICE
    elif tls:
        advice += ", or refuse this client's certificate"
    else:
        advice += ", or take TLS only (tls=True)"
    return TransportError(f"{address} closed the connection; {advice}", address=address)


def broken(address: str, error: OSError) -> TransportError:
    """Reading or writing failed."""
    return TransportError(
        f"the connection to {address} broke: {error.strerror or error}", address=address
    )
