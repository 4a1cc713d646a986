"""Which fields the header of each request and response has, and of which type.

On the wire every field is text; this table says how Java reads it: `S` text, `I` and `L` integers
of 32 and 64 bits, `B` true or false; `!` marks what Java's classes call required. It is the union
of releases 4.9.5 and 5.5.0. A server reads requests with it; `headers` builds them by hand, where
speed counts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.wire.codes import RequestCode

__all__ = ["FieldSpec", "encode_fields", "parse_fields", "request_fields", "response_fields"]

FieldValue = str | int | bool

#: Fields that 5.x adds to most requests; `*` in the tables stands for these.
_RPC_FIELDS: Final = "bname:S ns:S nsd:B oway:B"
#: `**`: these too, on requests about a topic.
_TOPIC_FIELDS: Final = "lo:B"

_REQUESTS: Final = """
SEND_MESSAGE**  batch:B bornTimestamp:L! defaultTopic:S! defaultTopicQueueNums:I! flag:I!
    maxReconsumeTimes:I producerGroup:S! properties:S queueId:I! reconsumeTimes:I sysFlag:I!
    topic:S! unitMode:B
SEND_MESSAGE_V2**  a:S! b:S! c:S! d:I! e:I! f:I! g:L! h:I! i:S j:I k:B l:I m:B n:S
SEND_BATCH_MESSAGE**  a:S! b:S! c:S! d:I! e:I! f:I! g:L! h:I! i:S j:I k:B l:I m:B n:S
PULL_MESSAGE**  commitOffset:L! consumerGroup:S! expressionType:S liteTopic:S maxMsgBytes:I
    maxMsgNums:I! proxyFrowardClientId:S queueId:I! queueOffset:L! requestSource:I subVersion:L!
    subscription:S suspendTimeoutMillis:L! sysFlag:I! topic:S!
QUERY_MESSAGE**  beginTimestamp:L! endTimestamp:L! indexType:S key:S! lastKey:S maxNum:I!
    topic:S!
QUERY_CONSUMER_OFFSET**  consumerGroup:S! queueId:I! setZeroIfNotFound:B topic:S!
UPDATE_CONSUMER_OFFSET**  commitOffset:L! consumerGroup:S! queueId:I! topic:S!
UPDATE_AND_CREATE_TOPIC**  attributes:S defaultTopic:S! force:B order:B! perm:I!
    readQueueNums:I! topic:S! topicFilterType:S! topicSysFlag:I writeQueueNums:I!
SEARCH_OFFSET_BY_TIMESTAMP**  boundaryType:S liteTopic:S queueId:I! timestamp:L! topic:S!
GET_MAX_OFFSET**  committed:B queueId:I! topic:S!
GET_MIN_OFFSET**  queueId:I! topic:S!
GET_EARLIEST_MSG_STORETIME**  queueId:I! topic:S!
VIEW_MESSAGE_BY_ID  offset:L! topic:S
HEART_BEAT*
UNREGISTER_CLIENT*  clientID:S! consumerGroup:S producerGroup:S
CONSUMER_SEND_MSG_BACK*  delayLevel:I! group:S! maxReconsumeTimes:I offset:L! originMsgId:S
    originTopic:S unitMode:B
END_TRANSACTION*  commitLogOffset:L! commitOrRollback:I! fromTransactionCheck:B msgId:S!
    producerGroup:S! topic:S tranStateTableOffset:L! transactionId:S
GET_CONSUMER_LIST_BY_GROUP*  consumerGroup:S!
CHECK_TRANSACTION_STATE*  commitLogOffset:L! msgId:S offsetMsgId:S topic:S
    tranStateTableOffset:L! transactionId:S
NOTIFY_CONSUMER_IDS_CHANGED*  consumerGroup:S!
LOCK_BATCH_MQ*
UNLOCK_BATCH_MQ*
RESET_CONSUMER_CLIENT_OFFSET**  group:S! isForce:B! offset:L queueId:I timestamp:L! topic:S!
GET_CONSUMER_STATUS_FROM_CLIENT**  clientAddr:S group:S! topic:S!
GET_CONSUMER_RUNNING_INFO*  clientId:S! consumerGroup:S! jstackEnable:B
CONSUME_MESSAGE_DIRECTLY**  brokerName:S clientId:S consumerGroup:S! groupSysFlag:I msgId:S
    topic:S topicSysFlag:I
PUSH_REPLY_MESSAGE_TO_CLIENT**  bornHost:S! bornTimestamp:L! defaultTopic:S!
    defaultTopicQueueNums:I! flag:I! producerGroup:S! properties:S queueId:I! reconsumeTimes:I
    storeHost:S! storeTimestamp:L! sysFlag:I! topic:S! unitMode:B
GET_ROUTEINFO_BY_TOPIC**  acceptStandardJsonOnly:B topic:S!
REGISTER_BROKER  bodyCrc32:I brokerAddr:S! brokerId:L! brokerName:S! clusterName:S! compressed:B
    enableActingMaster:B haServerAddr:S! heartbeatTimeoutMillis:L
UNREGISTER_BROKER  brokerAddr:S! brokerId:L! brokerName:S! clusterName:S!
QUERY_DATA_VERSION  brokerAddr:S! brokerId:L! brokerName:S! clusterName:S!
BROKER_HEARTBEAT  brokerAddr:S! brokerId:L brokerName:S! clusterName:S! confirmOffset:L
    electionPriority:I epoch:I heartbeatTimeoutMills:L maxOffset:L
GET_BROKER_MEMBER_GROUP  brokerName:S! clusterName:S!
PUT_KV_CONFIG  key:S! namespace:S! value:S!
GET_KV_CONFIG  key:S! namespace:S!
DELETE_KV_CONFIG  key:S! namespace:S!
GET_KVLIST_BY_NAMESPACE  namespace:S!
GET_TOPICS_BY_CLUSTER  cluster:S!
DELETE_TOPIC_IN_NAMESRV**  clusterName:S topic:S!
REGISTER_TOPIC_IN_NAMESRV**  topic:S!
WIPE_WRITE_PERM_OF_BROKER  brokerName:S!
ADD_WRITE_PERM_OF_BROKER  brokerName:S!
DELETE_TOPIC_IN_BROKER**  topic:S!
DELETE_SUBSCRIPTIONGROUP*  cleanOffset:B groupName:S! removeOffset:B
GET_TOPIC_STATS_INFO**  topic:S!
GET_CONSUME_STATS**  consumerGroup:S! topic:S topicList:S
GET_CONSUMER_CONNECTION_LIST*  consumerGroup:S!
GET_PRODUCER_CONNECTION_LIST*  producerGroup:S!
QUERY_TOPIC_CONSUME_BY_WHO**  topic:S!
QUERY_TOPICS_BY_CONSUMER*  group:S!
QUERY_SUBSCRIPTION_BY_CONSUMER**  group:S! topic:S
INVOKE_BROKER_TO_RESET_OFFSET**  group:S! isForce:B! offset:L queueId:I timestamp:L! topic:S!
INVOKE_BROKER_TO_GET_CONSUMER_STATUS**  clientAddr:S group:S! topic:S!
QUERY_CONSUME_TIME_SPAN**  group:S! topic:S!
QUERY_CORRECTION_OFFSET**  compareGroup:S! filterGroups:S topic:S!
CLONE_GROUP_OFFSET*  destGroup:S! offline:B srcGroup:S! topic:S
QUERY_CONSUME_QUEUE**  consumerGroup:S count:I index:L queueId:I topic:S
GET_TOPIC_CONFIG**  topic:S!
GET_SUBSCRIPTIONGROUP_CONFIG*  group:S!
GET_ALL_TOPIC_CONFIG  dataVersion:S maxTopicNum:I topicSeq:I!
GET_ALL_SUBSCRIPTIONGROUP_CONFIG  dataVersion:S groupSeq:I! maxGroupNum:I
RECALL_MESSAGE**  producerGroup:S recallHandle:S! topic:S!
POP_MESSAGE**  attemptId:S bornTime:L! consumerGroup:S! exp:S expType:S initMode:I!
    invisibleTime:L! maxMsgNums:I! order:B pollTime:L! queueId:I! topic:S!
ACK_MESSAGE**  consumerGroup:S! extraInfo:S! liteTopic:S offset:L! queueId:I! topic:S!
PEEK_MESSAGE**  consumerGroup:S! maxMsgNums:I! queueId:I! topic:S!
CHANGE_MESSAGE_INVISIBLETIME**  consumerGroup:S! extraInfo:S! invisibleTime:L! liteTopic:S
    offset:L! queueId:I! suspend:B topic:S!
NOTIFICATION**  attemptId:S bornTime:L! consumerGroup:S! exp:S expType:S order:B pollTime:L!
    queueId:I! topic:S!
POLLING_INFO**  consumerGroup:S! queueId:I! topic:S!
"""

_RESPONSES: Final = """
SendMessageResponseHeader  batchUniqId:S msgId:S! queueId:I! queueOffset:L! recallHandle:S
    transactionId:S
PullMessageResponseHeader  forbiddenType:I groupSysFlag:I maxOffset:L! minOffset:L!
    nextBeginOffset:L! offsetDelta:L suggestWhichBrokerId:L! topicSysFlag:I
QueryConsumerOffsetResponseHeader  offset:L!
GetMaxOffsetResponseHeader  offset:L!
GetMinOffsetResponseHeader  offset:L!
SearchOffsetResponseHeader  offset:L!
GetEarliestMsgStoretimeResponseHeader  timestamp:L!
QueryMessageResponseHeader  indexLastUpdatePhyoffset:L! indexLastUpdateTimestamp:L!
PopMessageResponseHeader  invisibleTime:L! msgOffsetInfo:S orderCountInfo:S popTime:L!
    restNum:L! reviveQid:I! startOffsetInfo:S
ChangeInvisibleTimeResponseHeader  invisibleTime:L! popTime:L! reviveQid:I!
NotificationResponseHeader  hasMsg:B! pollingFull:B
PollingInfoResponseHeader  pollingNum:I!
RecallMessageResponseHeader  msgId:S!
RegisterBrokerResponseHeader  haServerAddr:S masterAddr:S
QueryDataVersionResponseHeader  changed:B!
GetKVConfigResponseHeader  value:S
WipeWritePermOfBrokerResponseHeader  wipeTopicCount:I!
AddWritePermOfBrokerResponseHeader  addTopicCount:I!
GetBrokerConfigResponseHeader  version:S!
GetAllTopicConfigResponseHeader  totalTopicNum:I
"""

_RANGES: Final = {"I": 1 << 31, "L": 1 << 63}


class FieldSpec(msgspec.Struct, frozen=True):
    """Type (`S`, `I`, `L` or `B`) of a field, and whether Java calls it required."""

    kind: str
    required: bool


def _read_table(table: str) -> dict[str, dict[str, FieldSpec]]:
    result: dict[str, dict[str, FieldSpec]] = {}
    for line in table.replace("\n    ", " ").strip().splitlines():
        head, *fields = line.split()
        name = head.rstrip("*")
        stars = len(head) - len(name)
        fields += _RPC_FIELDS.split() * (stars > 0) + _TOPIC_FIELDS.split() * (stars > 1)
        specs = (field.partition(":") for field in fields)
        result[name] = {
            field: FieldSpec(kind.rstrip("!"), kind.endswith("!")) for field, _, kind in specs
        }
    return result


@functools.cache
def _requests() -> dict[str, dict[str, FieldSpec]]:
    return _read_table(_REQUESTS)


@functools.cache
def _responses() -> dict[str, dict[str, FieldSpec]]:
    return _read_table(_RESPONSES)


def request_fields(code: RequestCode) -> Mapping[str, FieldSpec]:
    """The fields of a request; empty for a code whose header has none.

    >>> request_fields(RequestCode.GET_MIN_OFFSET)["queueId"]
    FieldSpec(kind='I', required=True)
    """
    return _requests().get(code.name, {})


def response_fields(header: str) -> Mapping[str, FieldSpec]:
    """The fields of a response header, by the name of its Java class.

    >>> sorted(response_fields("GetMaxOffsetResponseHeader"))
    ['offset']
    """
    fields = _responses().get(header)
    if fields is None:
        raise ConfigurationError(f"'{header}' is no response header of this table")
    return fields


def encode_fields(values: Mapping[str, FieldValue | None]) -> dict[str, str]:
    """Header fields as they go out: text, absent when None.

    >>> encode_fields({"queueId": 3, "order": False, "topic": None})
    {'queueId': '3', 'order': 'false'}
    """
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def parse_fields(
    specs: Mapping[str, FieldSpec], fields: Mapping[str, str], *, strict: bool = False
) -> dict[str, FieldValue]:
    """Header fields by type; fields that the table does not name are left out.

    As in Java, text that is no number counts as absent. `strict` refuses a header in which a
    required field is absent.

    >>> parse_fields(request_fields(RequestCode.GET_MIN_OFFSET), {"topic": "t", "queueId": "3"})
    {'topic': 't', 'queueId': 3}
    """
    values: dict[str, FieldValue] = {}
    for name, text in fields.items():
        spec = specs.get(name)
        value = None if spec is None else _parse(spec.kind, text)
        if value is not None:
            values[name] = value
    if strict:
        missing = [name for name, spec in specs.items() if spec.required and name not in values]
        if missing:
            raise ProtocolError(f"header has no usable {', '.join(missing)}: it has {fields}")
    return values


def _parse(kind: str, text: str) -> FieldValue | None:
    if kind == "S":
        return text
    if kind == "B":
        return text.lower() == "true"
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    number = int(text)
    limit = _RANGES[kind]
    return number if -limit <= number < limit else None
