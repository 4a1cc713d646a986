"""Pulls of one queue: their header is written once, with gaps.

Of a pull only a few numbers differ from the one before. Filling them in costs a fraction of writing
the whole header down, and gives the same bytes. Its fields are there for those who ask for them:
requests are signed by their fields, and in tests nothing may be written at all.
"""

from __future__ import annotations

import struct
from typing import Final

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command, ReadyCommand, encode_command
from gimbalmq.wire.headers import pull_request

__all__ = ["PullCommand", "PullRequests"]

_words: Final = struct.Struct(">ii")
_PULL: Final = int(RequestCode.PULL_MESSAGE)
_NO_FIELDS: Final[dict[str, str]] = {}
#: Fields whose values differ, in the order in which they stand in the header.
_NUMBERS: Final = ("queueOffset", "sysFlag", "commitOffset", "subVersion")
#: Stands for a number that is filled in; no text in a header can have it.
_GAP: Final = "\x00gap\x00"
_GAP_BYTES: Final = b'"\\u0000gap\\u0000"'
_OPAQUE: Final = 2_000_000_000


class PullRequests:
    """Pulls of one queue by one group: what is the same in all of them is worked out once.

    >>> requests = PullRequests("billing", MessageQueue("orders", "broker-a", 3))
    >>> requests.at(7, sys_flag=2).fields == pull_request(
    ...     group="billing", queue=MessageQueue("orders", "broker-a", 3), offset=7, sys_flag=2
    ... ).fields
    True
    """

    __slots__ = ("_fields", "_header")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        *,
        max_messages: int = 32,
        suspend_timeout_ms: int = 0,
    ) -> None:
        self._fields = pull_request(
            group=group,
            queue=queue,
            offset=0,
            sys_flag=0,
            max_messages=max_messages,
            suspend_timeout_ms=suspend_timeout_ms,
        ).fields
        #: The header with a `%d` for each number and for the request's own; empty until needed.
        self._header = b""

    def at(
        self,
        offset: int,
        *,
        sys_flag: int,
        commit_offset: int = 0,
        subscription_version_ms: int = 0,
    ) -> PullCommand:
        """Ask for messages from `offset` on, as `pull_request` does."""
        numbers = offset, sys_flag, commit_offset, subscription_version_ms
        return PullCommand(_PULL, _NO_FIELDS, requests=self, numbers=numbers)

    def fields(self, numbers: tuple[int, int, int, int]) -> dict[str, str]:
        """The fields of a pull."""
        return self._fields | dict(zip(_NUMBERS, map(str, numbers), strict=True))

    def frame(self, opaque: int, numbers: tuple[int, int, int, int]) -> bytes:
        """The frame of a pull, as `encode_command` would have it.

        Raises:
            ConfigurationError: the group or the topic is not text.
        """
        header = (self._header or self._written()) % (numbers + (opaque,))  # noqa: RUF005 - quicker
        header_bytes = len(header)
        return _words.pack(header_bytes + 4, header_bytes) + header

    def _written(self) -> bytes:
        command = Command(_PULL, self._fields | dict.fromkeys(_NUMBERS, _GAP), opaque=_OPAQUE)
        header = encode_command(command)[_words.size :].replace(b"%", b"%%")
        before, _, after = header.replace(_GAP_BYTES, b'"%d"').rpartition(b"%d" % _OPAQUE)
        self._header = before + b"%d" + after
        return self._header


class PullCommand(ReadyCommand):
    """One pull; has its fields only when somebody asks for them."""

    requests: PullRequests | None = None
    numbers: tuple[int, int, int, int] = (0, 0, 0, 0)
    _known: dict[str, str] | None = None

    @property  # type: ignore[misc] # a field of others, which nobody sets here
    def fields(self) -> dict[str, str]:  # type: ignore[override]
        """The header's ext fields."""
        if self._known is None:
            assert self.requests is not None
            self._known = self.requests.fields(self.numbers)
        return self._known

    def frame(self) -> bytes:
        """The whole frame, with the JSON header."""
        assert self.requests is not None
        return self.requests.frame(self.opaque, self.numbers)
