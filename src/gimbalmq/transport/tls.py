"""TLS without a socket: bytes in, bytes out; and TLS failures in words.

`TlsStream` encrypts and decrypts for an owner that moves the bytes, so a handshake needs no
waiting and no second way of reading and writing. The failures are those of every connection.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

from gimbalmq.errors import TransportError, UnreachableError

__all__ = ["TlsStream", "handshake_error", "stream_error"]

_READ_BYTES: Final = 1 << 18
#: Alerts by which a server asks for another certificate of the client's, or for one at all.
_CLIENT_CERTIFICATE_ALERTS: Final = (
    "CERTIFICATE_REQUIRED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_HANDSHAKE_FAILURE",
)


class TlsStream:
    """The client's side of one TLS connection.

    Give received bytes to `receive`, send what `outgoing` returns after every call. `ready` says
    when the handshake is done; `write` is for after that.
    """

    def __init__(self, context: ssl.SSLContext, host: str, address: str) -> None:
        self._address = address
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.ready = False
        #: Whether the server said that nothing more will come.
        self.ended = False

    def start(self) -> None:
        """Begin the handshake."""
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Take what was received and return what it says; nothing while hands are shaken.

        Raises:
            UnreachableError: the handshake failed.
            TransportError: the connection broke later.
        """
        self._incoming.write(data)
        if not self.ready:
            self._shake_hands()
            if not self.ready:
                return b""
        parts: list[bytes] = []
        try:
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise stream_error(self._address, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt; the result is part of `outgoing`."""
        view = memoryview(data)
        while view:
            # Memory takes everything; the library only limits how much it takes at once.
            view = view[self._tls.write(view) :]

    def outgoing(self) -> bytes:
        """What has to be sent now, perhaps nothing."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                raise
            except ssl.SSLError as error:
                raise handshake_error(self._address, error) from error
            self.ready = True


def handshake_error(address: str, error: OSError) -> UnreachableError:
    """Why no TLS connection was made, and what to do about it."""
    return UnreachableError(
        f"no TLS connection to {address}: {_handshake_words(error)}", address=address
    )


def _handshake_words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        # The library ends its sentences, and repeats the address, as it likes.
        why = error.verify_message.rstrip(". ")
        return f"its certificate is not accepted ({why}); {_certificate_advice(error)}"
    if isinstance(error, TimeoutError):
        return "the handshake timed out; is it a server that speaks TLS?"
    name = _name(error)
    if name in {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}:
        return (
            "it answers in plain text; leave tls out, or check that the port is the one that "
            "speaks TLS"
        )
    if any(alert in name for alert in _CLIENT_CERTIFICATE_ALERTS):
        return (
            f"it refuses this client's certificate or wants one ({name}); give an ssl.SSLContext "
            "with load_cert_chain(...) of a certificate that it trusts"
        )
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return (
            "it closed the connection during the handshake; it may take plain text only "
            "(tls.server.mode=disabled: leave tls out), or want a client certificate"
        )
    return str(name or error.strerror or error)


def stream_error(address: str, error: OSError) -> TransportError:
    """Why a TLS connection that was made broke; a TLS 1.3 server refuses certificates that late."""
    name = _name(error)
    if any(alert in name for alert in _CLIENT_CERTIFICATE_ALERTS):
        return handshake_error(address, error)
    return TransportError(
        f"the TLS connection to {address} broke: {name or error.strerror or error}",
        address=address,
    )


def _name(error: OSError) -> str:
    return (error.reason or "") if isinstance(error, ssl.SSLError) else ""


def _certificate_advice(error: ssl.SSLCertVerificationError) -> str:
    if "match" in error.verify_message:
        return (
            "have the address put into the certificate (subjectAltName), lead the address to a "
            "name that is in it with address_map, or give an ssl.SSLContext with "
            "check_hostname = False, as Java clients have"
        )
    return (
        "give tls=ssl.create_default_context(cafile=...) with the authority that signed it. "
        "RocketMQ's built-in certificate is signed by nobody: give the servers one of your own "
        "(tls.server.certPath), or, for tests only, a context with verify_mode = ssl.CERT_NONE"
    )
