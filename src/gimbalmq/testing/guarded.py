"""Access control and TLS of a real RocketMQ cluster: the settings that switch them on.

Decides what each version has to be told; starts nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gimbalmq.broker.access import Account
from gimbalmq.broker.tls import ServerTls
from gimbalmq.errors import ConfigurationError
from gimbalmq.wire.acl import Credentials

__all__ = ["access_settings", "admin_credentials", "tls_flags"]

_AUTH: Final = "org.apache.rocketmq.auth"


def admin_credentials(accounts: tuple[Account, ...]) -> Credentials | None:
    """The keys with which a cluster is looked after; None without access control."""
    if not accounts:
        return None
    for one in accounts:
        if one.admin:
            return Credentials(one.access_key, one.secret_key)
    raise ConfigurationError("accounts: one of them has to be an administrator (admin=True)")


def access_settings(version: str, accounts: tuple[Account, ...], conf: Path) -> dict[str, str]:
    """What a broker needs in its configuration; 4.x also gets a file in the folder `conf`."""
    if not accounts:
        return {}
    if version.startswith("4."):
        (conf / "plain_acl.yml").write_text(_plain_acl(accounts), encoding="utf-8")
        return {"aclEnable": "true"}
    if len(accounts) > 1 or not accounts[0].admin:
        raise ConfigurationError(
            "RocketMQ 5.x starts with one account, an administrator's (admin=True): make the others "
            "with mqadmin createUser"
        )
    keys = accounts[0]
    settings = {
        "authConfigPath": str(conf / "auth"),
        "initAuthenticationUser": json.dumps(
            {"username": keys.access_key, "password": keys.secret_key}
        ),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": keys.access_key, "secretKey": keys.secret_key}
        ),
    }
    for kind in ("authentication", "authorization"):
        name = kind.capitalize()
        package = f"{_AUTH}.{kind}.provider"
        settings[f"{kind}Enabled"] = "true"
        settings[f"{kind}Provider"] = f"{package}.Default{name}Provider"
        settings[f"{kind}MetadataProvider"] = f"{package}.Local{name}MetadataProvider"
    return settings


def _plain_acl(accounts: Iterable[Account]) -> str:
    # JSON is YAML, and knows how to write a key with quotes in it.
    document = {
        "globalWhiteRemoteAddresses": [],
        "accounts": [
            {
                "accessKey": one.access_key,
                "secretKey": one.secret_key,
                "admin": one.admin,
                "defaultTopicPerm": one.default,
                "defaultGroupPerm": one.default,
                "topicPerms": [f"{name}={right}" for name, right in one.topics.items()],
                "groupPerms": [f"{name}={right}" for name, right in one.groups.items()],
            }
            for one in accounts
        ],
    }
    return json.dumps(document, indent=1)


def tls_flags(tls: ServerTls | None) -> tuple[str, ...]:
    """JVM options of a server; none leaves it with RocketMQ's own self-signed certificate."""
    if tls is None:
        return ()
    flags = (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={tls.cert_file}",
        f"-Dtls.server.keyPath={tls.key_file or tls.cert_file}",
    )
    if tls.client_ca_file is None:
        return flags
    return (
        *flags,
        "-Dtls.server.need.client.auth=require",
        "-Dtls.server.authClient=true",
        f"-Dtls.server.trustCertPath={tls.client_ca_file}",
    )
