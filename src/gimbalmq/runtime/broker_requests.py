"""What brokers ask of a client, and who in it answers: notices, transactions, questions of tools.

Decides which group a request is for, and what is answered when nobody knows it. Must not know what
the groups do with it, nor how an answer travels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from gimbalmq.core.routes import RouteTable
from gimbalmq.errors import ProtocolError
from gimbalmq.flows.transaction import TransactionCheck, parse_check
from gimbalmq.runtime.group_member import GroupMember
from gimbalmq.wire.codes import RequestCode, ResponseCode
from gimbalmq.wire.command import Command, response_to

__all__ = ["BrokerRequests", "CheckTransaction"]

_log = logging.getLogger("gimbalmq.client")

#: Gets a broker's address and its question about a transaction; must not wait.
CheckTransaction = Callable[[str, TransactionCheck], None]


class BrokerRequests:
    """Answers for the groups of one instance; both mappings are the instance's own, by group."""

    def __init__(
        self,
        members: Mapping[str, GroupMember],
        producers: Mapping[str, CheckTransaction | None],
        routes: RouteTable,
        warn: Callable[[str, str], None],
    ) -> None:
        self._members = members
        self._producers = producers
        self._routes = routes
        self._warn = warn

    def answer(
        self, address: str, request: Command, reply: Callable[[Command], None]
    ) -> Command | None:
        """The answer to a request, or None: there is none, or `reply` is called with it later.

        Change notices go to the group they name.
        """
        # Requests about a group name it as one or the other.
        group = request.fields.get("consumerGroup") or request.fields.get("group", "")
        member = self._members.get(group)
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            if member is not None:
                member.on_notice()
            return None
        if request.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check_transaction(address, request)
            return None
        if member is not None and member.on_request(request, reply):
            return None
        if request.is_oneway:
            _log.debug("request %s from %s is not handled by this client", request.code, address)
            return None
        if group and member is None:
            return response_to(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return response_to(
            request,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported",
        )

    def _check_transaction(self, address: str, request: Command) -> None:
        broker = self._routes.addresses().get(address, ("", 0))[0]
        try:
            check = parse_check(request, broker)
        except ProtocolError as error:
            self._warn(f"check {address}", f"{address} asks about a transaction: {error}")
            return
        answer = self._producers.get(check.group)
        if answer is None:
            self._warn(
                f"check {check.group}",
                f"{address} asks about transaction {check.half.message_id} of group "
                f"'{check.group}', whose producer has no check function: it stays open",
            )
            return
        answer(address, check)
