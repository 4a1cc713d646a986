"""What brokers and tools ask a running client, and assignment by the broker (5.x)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire.bodies.shape import (
    Document,
    convert,
    java_names,
    queue_from,
    queue_keyed,
    queue_map,
    queue_members,
    read_document,
    write_document,
)
from gimbalmq.wire.subscription import SubscriptionData

__all__ = [
    "Assignment",
    "AssignmentQuery",
    "BatchAck",
    "ConsumeResult",
    "ConsumeStatus",
    "PopQueueInfo",
    "QueueInfo",
    "RequestMode",
    "RunningInfo",
    "decode_assignment_query",
    "decode_assignments",
    "decode_batch_ack",
    "decode_consume_result",
    "decode_request_mode",
    "decode_running_info",
    "encode_assignment_query",
    "encode_assignments",
    "encode_batch_ack",
    "encode_consume_result",
    "encode_request_mode",
    "encode_running_info",
]


class QueueInfo(
    msgspec.Struct,
    frozen=True,
    rename=java_names(
        cached_count="cachedMsgCount",
        cached_max_offset="cachedMsgMaxOffset",
        cached_min_offset="cachedMsgMinOffset",
        cached_size_mib="cachedMsgSizeInMiB",
        dropped="droped",
        transaction_count="transactionMsgCount",
        transaction_max_offset="transactionMsgMaxOffset",
        transaction_min_offset="transactionMsgMinOffset",
    ),
):
    """What a push consumer holds of one queue; times are milliseconds since the epoch."""

    commit_offset: int = 0
    cached_min_offset: int = 0
    cached_max_offset: int = 0
    cached_count: int = 0
    cached_size_mib: int = 0
    transaction_min_offset: int = 0
    transaction_max_offset: int = 0
    transaction_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopQueueInfo(msgspec.Struct, frozen=True, rename=java_names(dropped="droped")):
    """What a popping consumer holds of one queue."""

    wait_ack_count: int = 0
    dropped: bool = False
    last_pop_timestamp: int = 0


class ConsumeStatus(
    msgspec.Struct,
    frozen=True,
    rename=java_names(
        pull_rt="pullRT",
        pull_tps="pullTPS",
        consume_rt="consumeRT",
        consume_ok_tps="consumeOKTPS",
        consume_failed_tps="consumeFailedTPS",
        consume_failed_count="consumeFailedMsgs",
    ),
):
    """How fast a consumer is on one topic."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_count: int = 0


class RunningInfo(msgspec.Struct, frozen=True):
    """Everything a tool may ask a consumer; it wants the properties PROP_CONSUME_TYPE and
    PROP_CONSUMER_START_TIMESTAMP.
    """

    properties: dict[str, str]
    subscriptions: tuple[SubscriptionData, ...] = ()
    queues: dict[MessageQueue, QueueInfo] = msgspec.field(default_factory=dict)
    pop_queues: dict[MessageQueue, PopQueueInfo] = msgspec.field(default_factory=dict)
    statuses: dict[str, ConsumeStatus] = msgspec.field(default_factory=dict)
    user_info: dict[str, str] = msgspec.field(default_factory=dict)
    stacks: str | None = None


class ConsumeResult(
    msgspec.Struct,
    frozen=True,
    rename=java_names(result="consumeResult", spent_ms="spentTimeMills"),
):
    """What became of a message that a tool had consumed (CR_SUCCESS, CR_LATER, ...)."""

    result: str = "CR_SUCCESS"
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_ms: int = 0


class AssignmentQuery(msgspec.Struct, frozen=True, rename=java_names(group="consumerGroup")):
    """A member asks the broker for its share."""

    topic: str = ""
    group: str = ""
    client_id: str = ""
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class Assignment(msgspec.Struct, frozen=True):
    """One queue of a share; in POP mode queue id -1 means all queues of that broker."""

    queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class RequestMode(msgspec.Struct, frozen=True, rename=java_names(group="consumerGroup")):
    """Whether a group pulls or pops a topic."""

    topic: str = ""
    group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: int = 0


class BatchAck(msgspec.Struct, frozen=True):
    """Acknowledgement of popped messages; `offsets` are queue offsets from `start_offset` on."""

    group: str
    topic: str
    #: "0" normal topic, "1" and "2" the two forms of the retry topic.
    retry: str
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_time: int
    invisible_time: int
    offsets: tuple[int, ...]


def encode_running_info(info: RunningInfo) -> bytes:
    """The answer to GET_CONSUMER_RUNNING_INFO."""
    return write_document(
        {
            "jstack": info.stacks,
            "mqPopTable": queue_keyed(info.pop_queues),
            "mqTable": queue_keyed(info.queues),
            "properties": info.properties,
            "statusTable": info.statuses,
            "subscriptionSet": info.subscriptions,
            "userConsumerInfo": info.user_info,
        }
    )


def decode_running_info(data: Document) -> RunningInfo:
    """Read the answer to GET_CONSUMER_RUNNING_INFO."""
    what = "consumer running info"
    read = read_document(data, what)
    queues = queue_map(read.get("mqTable"), what)
    pop_queues = queue_map(read.get("mqPopTable"), what)
    return RunningInfo(
        convert(read.get("properties", {}), dict[str, str], what),
        convert(read.get("subscriptionSet", []), tuple[SubscriptionData, ...], what),
        {queue: convert(one, QueueInfo, what) for queue, one in queues.items()},
        {queue: convert(one, PopQueueInfo, what) for queue, one in pop_queues.items()},
        convert(read.get("statusTable", {}), dict[str, ConsumeStatus], what),
        convert(read.get("userConsumerInfo", {}), dict[str, str], what),
        convert(read["jstack"], str, what) if "jstack" in read else None,
    )


def encode_consume_result(result: ConsumeResult) -> bytes:
    """The answer to CONSUME_MESSAGE_DIRECTLY."""
    return write_document(result)


def decode_consume_result(data: Document) -> ConsumeResult:
    """Read the answer to CONSUME_MESSAGE_DIRECTLY."""
    return convert(read_document(data, "consume result"), ConsumeResult, "consume result")


def encode_assignment_query(query: AssignmentQuery) -> bytes:
    """The body of QUERY_ASSIGNMENT."""
    return write_document(query)


def decode_assignment_query(data: Document) -> AssignmentQuery:
    """Read the body of QUERY_ASSIGNMENT."""
    return convert(read_document(data, "assignment query"), AssignmentQuery, "assignment query")


def encode_assignments(assignments: Iterable[Assignment] | None) -> bytes:
    """The answer to QUERY_ASSIGNMENT; None = no opinion."""
    if assignments is None:
        return b"{}"
    return write_document(
        {
            "messageQueueAssignments": [
                {
                    "attachments": one.attachments,
                    "messageQueue": queue_members(one.queue),
                    "mode": one.mode,
                }
                for one in assignments
            ]
        }
    )


def decode_assignments(data: Document) -> tuple[Assignment, ...] | None:
    """Read the answer to QUERY_ASSIGNMENT: None = no opinion, keep what you have; () = drop all."""
    what = "assignment"
    listed = read_document(data, what).get("messageQueueAssignments")
    if listed is None:
        return None
    return tuple(
        Assignment(
            queue_from(one.get("messageQueue"), what),
            convert(one.get("mode", "PULL"), str, what),
            convert(one["attachments"], dict[str, str], what) if "attachments" in one else None,
        )
        for one in convert(listed, list[dict[str, Any]], what)
    )


def encode_request_mode(mode: RequestMode) -> bytes:
    """The body of SET_MESSAGE_REQUEST_MODE."""
    return write_document(mode)


def decode_request_mode(data: Document) -> RequestMode:
    """Read the body of SET_MESSAGE_REQUEST_MODE."""
    return convert(read_document(data, "request mode"), RequestMode, "request mode")


#: Long names of the members, which brokers accept too.
_ACK_NAMES: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


#: A pop hands out at most 32 messages; a filter may spread them over a longer range.
_ACK_SPAN_MAX: Final = 1 << 20


class _Ack(msgspec.Struct):
    c: str = ""
    t: str = ""
    r: str = "0"
    so: int = 0
    q: int = 0
    rq: int = 0
    pt: int = 0
    it: int = 0
    b: str = ""


def encode_batch_ack(broker: str, acks: Iterable[BatchAck]) -> bytes:
    """The body of BATCH_ACK_MESSAGE."""
    listed = [
        _Ack(
            ack.group,
            ack.topic,
            ack.retry,
            ack.start_offset,
            ack.queue_id,
            ack.revive_queue_id,
            ack.pop_time,
            ack.invisible_time,
            _bits_text(ack),
        )
        for ack in acks
    ]
    return write_document({"acks": listed, "brokerName": broker})


def decode_batch_ack(data: Document) -> tuple[str, tuple[BatchAck, ...]]:
    """Read the body of BATCH_ACK_MESSAGE: broker name and acknowledgements."""
    what = "batch acknowledgement"
    read = read_document(data, what)
    acks = []
    for one in convert(read.get("acks", []), list[dict[str, Any]], what):
        members = {_ACK_NAMES.get(name, name): value for name, value in one.items()}
        ack = convert(members, _Ack, what)
        offsets = tuple(ack.so + bit for bit in _bits(ack.b, what))
        acks.append(BatchAck(ack.c, ack.t, ack.r, ack.so, ack.q, ack.rq, ack.pt, ack.it, offsets))
    return convert(read.get("brokerName", ""), str, what), tuple(acks)


def _bits_text(ack: BatchAck) -> str:
    number = 0
    for offset in ack.offsets:
        if not 0 <= offset - ack.start_offset < _ACK_SPAN_MAX:
            raise ConfigurationError(
                f"offset {offset} cannot be acknowledged in a batch that starts at "
                f"{ack.start_offset}: give each start its own acknowledgement"
            )
        number |= 1 << (offset - ack.start_offset)
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


def _bits(text: str, what: str) -> list[int]:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"{what} has a bit set that is no base64: {text!r}") from error
    return [
        8 * index + bit for index, byte in enumerate(data) for bit in range(8) if byte >> bit & 1
    ]
