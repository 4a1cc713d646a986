"""Signing of requests for brokers with access control (ACL 1.0 and 2.0 alike).

The signature covers the values of all fields in the order of their names, and the body. Nothing
may be added to a command after it is signed.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.model.java import sorted_as_java
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command

__all__ = ["UNIQUE_KEY_QUERY", "Credentials", "sign", "signature", "signed_content"]

_SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
#: 4.x brokers leave `_UNIQUE_KEY_QUERY` out of what they check, 5.x brokers only up to this
#: version of the request (4.9.3). With this version, signed without the field, all accept it.
_QUERY_VERSION: Final = 399


class Credentials(msgspec.Struct, frozen=True):
    """Who signs; `security_token` only with temporary keys."""

    access_key: str
    secret_key: str
    security_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"


def signed_content(
    fields: Mapping[str, str], body: bytes | memoryview, *, without: frozenset[str] = frozenset()
) -> bytes:
    """The bytes that a signature covers: values in the order of their names, then the body."""
    names = (name for name in sorted_as_java(fields) if name != _SIGNATURE and name not in without)
    return b"".join(("".join([fields[name] for name in names]).encode(), body))


def signature(content: bytes, secret_key: str) -> str:
    """The text that proves knowledge of the secret key.

    >>> signature(b"akTopicTest", "sk")
    'bUNDfLxxr02vTlIhHg73lpRhduQ='
    """
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def sign(command: Command, credentials: Credentials) -> Command:
    """The command with its signature; the one given is left as it is.

    A query by key gets a lower version number, with which brokers of all releases compute the
    same signature.

    >>> signed = sign(Command(105, {"topic": "TopicTest"}), Credentials("ak", "sk"))
    >>> signed.fields["Signature"]
    'bUNDfLxxr02vTlIhHg73lpRhduQ='
    """
    fields = {**command.fields, "AccessKey": credentials.access_key}
    if credentials.security_token:
        fields["SecurityToken"] = credentials.security_token
    signed = msgspec.structs.replace(command, fields=fields)
    without: frozenset[str] = frozenset()
    if command.code == RequestCode.QUERY_MESSAGE and UNIQUE_KEY_QUERY in fields:
        signed.version = min(command.version, _QUERY_VERSION)
        without = frozenset({UNIQUE_KEY_QUERY})
    content = signed_content(fields, command.body, without=without)
    fields[_SIGNATURE] = signature(content, credentials.secret_key)
    return signed
