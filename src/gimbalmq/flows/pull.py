"""One pull, for a caller who waits."""

from __future__ import annotations

from gimbalmq.flows.effects import Flow, broker_error, call
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.codes import PullFlag
from gimbalmq.wire.headers import parse_pull_response, pull_request
from gimbalmq.wire.received import PullResult
from gimbalmq.wire.record import decode_records
from gimbalmq.wire.subscription import SubscriptionData

__all__ = ["pull"]

#: Java's time-out of a pull, and how much longer a long poll may take than the broker holds it.
_TIMEOUT_S = 10.0
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
_SUSPEND = int(PullFlag.SUSPEND)
_STATUS = {status.value: status for status in PullStatus}


def pull(
    address: str,
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    subscription: SubscriptionData,
    max_messages: int = 32,
    wait_s: float = 0.0,
    timeout_s: float = _TIMEOUT_S,
) -> Flow[PullResult]:
    """Ask for messages from an offset on; with `wait_s` the broker may hold the request.

    The request carries its own filter, so nobody needs to be registered for it.
    """
    request = pull_request(
        group=group,
        queue=queue,
        offset=offset,
        sys_flag=_SUBSCRIPTION | (_SUSPEND if wait_s > 0 else 0),
        max_messages=max_messages,
        suspend_timeout_ms=int(wait_s * 1000),
        expression=subscription.expression,
        expression_type=subscription.expression_type,
        subscription_version_ms=subscription.version_ms,
    )
    answer = yield from call(address, request, wait_s + timeout_s)
    status = _STATUS.get(answer.code)
    if status is None:
        raise broker_error(address, request, answer)
    header = parse_pull_response(answer)
    messages = decode_records(answer.body, queue.broker) if status is PullStatus.FOUND else []
    return PullResult(
        status,
        tuple(message for message in messages if subscription.matches(message.tags)),
        header.next_offset,
        header.minimum,
        header.maximum,
    )
