"""Signing of requests for brokers with access control (ACL 1.0 and 2.0 alike).

The signature covers the values of all fields in the order of their names, and the body. Nothing
may be added to a command after it is signed.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import sorted_as_java
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command

__all__ = [
    "UNIQUE_KEY_QUERY",
    "Credentials",
    "credentials_of",
    "denial",
    "is_denial",
    "sign",
    "signature",
    "signed_content",
]

_SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
#: 4.x brokers leave `_UNIQUE_KEY_QUERY` out of what they check, 5.x brokers only up to this
#: version of the request (4.9.3). With this version, signed without the field, all accept it.
_QUERY_VERSION: Final = 399

#: Brokers deny with these codes (5.x and 4.x), which also have other meanings; the words decide.
_DENIAL_CODES: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR})
_NO_KEY: Final = re.compile(r"username cannot be null|No accessKey is configured")
_UNKNOWN_KEY: Final = re.compile(r"User:\S* is not found|No acl config for|User:\S* is disabled")
_WRONG_SECRET: Final = re.compile(r"check signature failed", re.IGNORECASE)
_NO_RIGHT: Final = re.compile(
    r"has no permission to access|No default permission for|Need admin permission|AclException"
)


class Credentials(msgspec.Struct, frozen=True):
    """Who signs; `security_token` only with temporary keys."""

    access_key: str
    secret_key: str
    security_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"


def credentials_of(access_key: str | None, secret_key: str | None) -> Credentials | None:
    """The keys that a user gave, or None when there are none.

    Raises:
        ConfigurationError: one of the two is missing.
    """
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        given, missing = ("access", "secret") if access_key else ("secret", "access")
        raise ConfigurationError(
            f"{given}_key is given without {missing}_key: give both, or neither for a cluster "
            "without access control"
        )
    return Credentials(access_key, secret_key)


def is_denial(code: int, remark: str | None) -> bool:
    """Whether an answer refuses the keys of the request, or what they may do."""
    if code not in _DENIAL_CODES or not remark:
        return False
    return any(
        pattern.search(remark) for pattern in (_NO_KEY, _UNKNOWN_KEY, _WRONG_SECRET, _NO_RIGHT)
    )


def denial(code: int, remark: str | None, access_key: str | None) -> str | None:
    """What a denial means for the one who asked, and what to do; None when it is none.

    >>> denial(16, "check signature failed.", "shop")
    "the secret key does not belong to access key 'shop': check secret_key"
    """
    if remark is None or not is_denial(code, remark):
        return None
    if access_key is None:
        return "this cluster asks for keys: give access_key and secret_key"
    if _NO_KEY.search(remark):
        return f"the broker got no keys, although access key '{access_key}' was sent"
    if _UNKNOWN_KEY.search(remark):
        return f"the broker has no user with access key '{access_key}': check access_key"
    if _WRONG_SECRET.search(remark):
        return f"the secret key does not belong to access key '{access_key}': check secret_key"
    return f"access key '{access_key}' may not do this: have the right granted, or use other keys"


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
    signed = Command(
        command.code,
        fields,
        command.body,
        command.opaque,
        command.flag,
        command.remark,
        command.language,
        command.version,
    )
    without: frozenset[str] = frozenset()
    if command.code == RequestCode.QUERY_MESSAGE and UNIQUE_KEY_QUERY in fields:
        signed.version = min(command.version, _QUERY_VERSION)
        without = frozenset({UNIQUE_KEY_QUERY})
    content = signed_content(fields, command.body, without=without)
    fields[_SIGNATURE] = signature(content, credentials.secret_key)
    return signed
