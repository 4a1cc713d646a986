"""The consumer groups that one broker knows by configuration, connected or not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from gimbalmq.broker.documents import Documents
from gimbalmq.broker.effects import RefusalError
from gimbalmq.broker.settings import BrokerSettings
from gimbalmq.broker.store.api import StoreError
from gimbalmq.wire.bodies import (
    DataVersion,
    GroupConfig,
    GroupConfigTable,
    decode_group_table,
    encode_group_table,
)
from gimbalmq.wire.codes import ResponseCode
from gimbalmq.wire.names import is_group

__all__ = ["GroupTable"]

_DOCUMENT: Final = "subscriptionGroup"

#: Groups that every Java broker has from the start.
_SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_SYS_RMQ_TRANS",
)


class GroupTable:
    """Groups by name, saved with every change."""

    def __init__(self, settings: BrokerSettings, documents: Documents) -> None:
        #: Replaced when an administrator changes them.
        self.settings = settings
        self._documents = documents
        data = documents.load(_DOCUMENT)
        table = GroupConfigTable() if data is None else decode_group_table(data)
        self._groups = {name: GroupConfig(name) for name in _SYSTEM_GROUPS} | table.groups
        self.version = table.data_version

    def get(self, group: str) -> GroupConfig | None:
        """A group that is configured, or None."""
        return self._groups.get(group)

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(list(self._groups.values()))

    def table(self) -> GroupConfigTable:
        """All groups."""
        return GroupConfigTable(dict(self._groups), self.version)

    def find(self, group: str, now_ms: int) -> GroupConfig | None:
        """A group, made on the spot when that is allowed; None when it is unknown.

        While the disk refuses, a new group can still read: it is there for this request only.
        """
        config = self._groups.get(group)
        if config is None and self.settings.auto_create_group and is_group(group):
            config = GroupConfig(group)
            with contextlib.suppress(StoreError):
                self.put(config, now_ms)
        return config

    def require(self, group: str, now_ms: int) -> GroupConfig:
        """A group, or a refusal that says so."""
        config = self.find(group, now_ms)
        if config is None:
            raise RefusalError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group[:300]}] does not exist, and is not created: "
                "make it with updateSubGroup",
            )
        return config

    def put(self, config: GroupConfig, now_ms: int) -> None:
        """Make or change a group."""
        if config.name not in self._groups and len(self._groups) >= self.settings.groups_max:
            raise RefusalError(
                ResponseCode.SYSTEM_ERROR,
                f"broker {self.settings.name} knows {len(self._groups)} groups, its limit: "
                "delete some, or raise groups_max",
            )
        self._replace(self._groups | {config.name: config}, now_ms)

    def delete(self, group: str, now_ms: int) -> bool:
        """Forget a group; whether it was there."""
        if group not in self._groups:
            return False
        left = {name: config for name, config in self._groups.items() if name != group}
        self._replace(left, now_ms)
        return True

    def _replace(self, groups: dict[str, GroupConfig], now_ms: int) -> None:
        """Save, then adopt: a group that could not be saved is not there."""
        version = DataVersion(now_ms, self.version.counter + 1, self.version.state_version)
        self._documents.save(_DOCUMENT, encode_group_table(GroupConfigTable(groups, version)))
        self._groups, self.version = groups, version
