"""Access control: who may do what, by keys and rights per topic and group.

The check comes before everything else and covers every request, as in Java 5.x; denials are code
16 with Java's words, which its clients understand. Requests are signed as `wire.acl` says.
"""

from __future__ import annotations

import hmac
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.broker.effects import Channel, RefusalError
from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire import bodies
from gimbalmq.wire.acl import UNIQUE_KEY_QUERY, signature, signed_content
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.names import DLQ_PREFIX, RETRY_PREFIX

__all__ = ["AccessControl", "Account", "load_accounts"]

_PUBLISH: Final = "PUB"
_SUBSCRIBE: Final = "SUB"
_RIGHTS: Final = frozenset({_PUBLISH, _SUBSCRIBE, "DENY"})
#: Up to this version (4.9.3) the field that marks a query by unique key is not signed.
_QUERY_VERSION: Final = 399

_code: Final = RequestCode
_PUBLISHING: Final = {
    _code.SEND_MESSAGE: "topic",
    _code.SEND_MESSAGE_V2: "b",
    _code.SEND_BATCH_MESSAGE: "b",
    _code.SEND_REPLY_MESSAGE: "topic",
    _code.SEND_REPLY_MESSAGE_V2: "b",
    _code.RECALL_MESSAGE: "topic",
    _code.END_TRANSACTION: "topic",
}
#: Requests of consumers: names of their topic and group fields.
_SUBSCRIBING: Final = {
    _code.PULL_MESSAGE: ("topic", "consumerGroup"),
    _code.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
    _code.QUERY_MESSAGE: ("topic", ""),
    _code.QUERY_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    _code.UPDATE_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    _code.CONSUMER_SEND_MSG_BACK: ("", "group"),
    _code.GET_CONSUMER_LIST_BY_GROUP: ("", "consumerGroup"),
    _code.UNREGISTER_CLIENT: ("", "consumerGroup"),
    _code.POP_MESSAGE: ("topic", "consumerGroup"),
    _code.ACK_MESSAGE: ("topic", "consumerGroup"),
    _code.CHANGE_MESSAGE_INVISIBLETIME: ("topic", "consumerGroup"),
    _code.PEEK_MESSAGE: ("topic", "consumerGroup"),
    _code.NOTIFICATION: ("topic", "consumerGroup"),
}
#: Needed by every client; the resources that some of them name are in their bodies.
_COMMON: Final = frozenset(
    {
        _code.HEART_BEAT,
        _code.CHECK_CLIENT_CONFIG,
        _code.LOCK_BATCH_MQ,
        _code.UNLOCK_BATCH_MQ,
        _code.GET_MAX_OFFSET,
        _code.GET_MIN_OFFSET,
        _code.SEARCH_OFFSET_BY_TIMESTAMP,
        _code.GET_EARLIEST_MSG_STORETIME,
        _code.VIEW_MESSAGE_BY_ID,
        _code.QUERY_ASSIGNMENT,
        _code.BATCH_ACK_MESSAGE,
        _code.POLLING_INFO,
    }
)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of one user, and what they open.

    Rights are `PUB`, `SUB`, `PUB|SUB` or `DENY`; a name that ends in `*` stands for all that
    begin so. What is not named has `default`. An administrator may do everything.

        Account(access_key="shop", secret_key="...", topics={"orders": "PUB"})
    """

    access_key: str
    secret_key: str
    admin: bool = False
    topics: Mapping[str, str] = msgspec.field(default_factory=dict)
    groups: Mapping[str, str] = msgspec.field(default_factory=dict)
    default: str = "DENY"

    def __repr__(self) -> str:
        return f"Account(access_key={self.access_key!r}, admin={self.admin})"

    def __post_init__(self) -> None:
        given = (*self.topics.values(), *self.groups.values(), self.default)
        wrong = {right for rights in given for right in rights.split("|")} - _RIGHTS
        if wrong:
            raise ConfigurationError(
                f"account '{self.access_key}' has the rights {sorted(wrong)}: write PUB, SUB, "
                "PUB|SUB or DENY"
            )

    def may(self, right: str, name: str, rights: Mapping[str, str]) -> bool:
        """Whether a right is given for a name: the name itself, else the longest prefix."""
        if self.admin:
            return True
        found = rights.get(name)
        if found is None:
            prefixes = [one for one in rights if one.endswith("*") and name.startswith(one[:-1])]
            found = rights[max(prefixes, key=len)] if prefixes else self.default
        return right in found.split("|")


class _AccountFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    accounts: tuple[Account, ...]


def load_accounts(path: Path) -> tuple[Account, ...]:
    """Read accounts from a TOML file: one table `[[accounts]]` each, with the fields of `Account`.

        [[accounts]]
        access_key = "shop"
        secret_key = "..."
        topics = { "orders" = "PUB|SUB" }
        groups = { "billing*" = "SUB" }

    Raises:
        ConfigurationError: the file cannot be read, says something else, or nobody is in it.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        accounts = msgspec.convert(document, _AccountFile).accounts
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"the account file {path} cannot be used: {error}") from error
    names = [one.access_key for one in accounts]
    if not accounts or len(set(names)) != len(names):
        raise ConfigurationError(
            f"the account file {path}: give at least one account, and each access key once"
        )
    return accounts


class AccessControl:
    """Accounts by access key."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self._accounts = {account.access_key: account for account in accounts}

    def check(self, request: Command, channel: Channel) -> None:
        """Refuse a request that is not signed, wrongly signed, or beyond the account's rights."""
        account = self._authenticated(request)
        if account.admin:
            return
        for kind, name, right in _needs(request):
            rights = account.topics if kind == "Topic" else account.groups
            if not account.may(right, name, rights):
                raise _denied(
                    f"User:{account.access_key} has no permission to access {kind}:{name} from "
                    f"{channel.host}, no matched policies."
                )

    def _authenticated(self, request: Command) -> Account:
        key = request.fields.get("AccessKey")
        if not key:
            raise _denied("username cannot be null.")
        account = self._accounts.get(key)
        if account is None:
            raise _denied(f"User:{key} is not found.")
        unsigned: frozenset[str] = frozenset()
        if request.code == RequestCode.QUERY_MESSAGE and request.version <= _QUERY_VERSION:
            unsigned = frozenset({UNIQUE_KEY_QUERY})
        content = signed_content(request.fields, request.body, without=unsigned)
        expected = signature(content, account.secret_key)
        given = request.fields.get("Signature", "")
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
            raise _denied("check signature failed.")
        return account


def _needs(request: Command) -> list[tuple[str, str, str]]:
    """What a request touches: kind and name of each resource, and the right that it takes."""
    code = request.code
    if code in _PUBLISHING:
        topic = request.fields.get(_PUBLISHING[RequestCode(code)], "")
        return [_topic(topic, _PUBLISH)] if topic else []
    if code in _SUBSCRIBING:
        topic, group = (request.fields.get(name, "") for name in _SUBSCRIBING[RequestCode(code)])
        needs = [_topic(topic, _SUBSCRIBE)] if topic else []
        return needs + ([("Group", group, _SUBSCRIBE)] if group else [])
    if code in _COMMON:
        return _needs_of_body(request)
    # Administration, and what nobody knows: no account but an administrator's has this right.
    return [("Topic", request.fields.get("topic", f"request {code}"), "ADMIN")]


def _needs_of_body(request: Command) -> list[tuple[str, str, str]]:
    try:
        match request.code:
            case RequestCode.HEART_BEAT:
                consumers = bodies.decode_heartbeat(request.body).consumers
                return [("Group", data.group, _SUBSCRIBE) for data in consumers] + [
                    _topic(one.topic, _SUBSCRIBE)
                    for data in consumers
                    for one in data.subscriptions
                ]
            case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
                return [("Group", bodies.decode_lock(request.body).group, _SUBSCRIBE)]
            case RequestCode.BATCH_ACK_MESSAGE:
                acks = bodies.decode_batch_ack(request.body)[1]
                return [("Group", ack.group, _SUBSCRIBE) for ack in acks]
            case _:
                return []
    except ProtocolError as error:
        raise _denied(str(error)) from error


def _topic(name: str, right: str) -> tuple[str, str, str]:
    """A retry topic belongs to its group."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return "Group", name.removeprefix(prefix), _SUBSCRIBE
    return "Topic", name, right


def _denied(remark: str) -> RefusalError:
    return RefusalError(ResponseCode.NO_PERMISSION, remark)
