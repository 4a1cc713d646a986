"""A server's side of TLS, as files: so that a server in another process can be told of it."""

from __future__ import annotations

import ssl

import msgspec

from gimbalmq.errors import ConfigurationError

__all__ = ["ServerTls"]


class ServerTls(msgspec.Struct, frozen=True):
    """A server's certificate and key (PEM, the key in PKCS #8 form).

    Without `key_file` the key is in `cert_file`, too. With `client_ca_file` clients must show a
    certificate of that authority. Plain text is taken beside TLS, as RocketMQ does unless told
    otherwise.
    """

    cert_file: str
    key_file: str | None = None
    client_ca_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """What a socket needs; ConfigurationError when a file cannot be used."""
        try:
            context = ssl.create_default_context(
                ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca_file
            )
            context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # an SSLError is one
            named = (self.cert_file, self.key_file, self.client_ca_file)
            listed = ", ".join(name for name in named if name is not None)
            raise ConfigurationError(
                f"TLS cannot use {listed} ({error.strerror or error}): give a certificate and its "
                "key as PEM files that this process may read"
            ) from error
        if self.client_ca_file is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context
