"""The lines of wire.jsonl about bodies: what Java writes, and what it makes of other texts."""

from __future__ import annotations

import functools
import json
import zlib
from pathlib import Path

import msgspec
import pytest

from gimbalmq.errors import ProtocolError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies, codes
from gimbalmq.wire.command import Command, decode_command
from gimbalmq.wire.lenient_json import read_json

OLD = "4.9.5"


@functools.cache
def lines_by_kind(path: Path) -> dict[str, list[dict]]:
    result: dict[str, list[dict]] = {}
    with path.open(encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            line = json.loads(text)
            line["number"] = number
            result.setdefault(line["kind"], []).append(line)
    return result


def as_vector(value):
    """A read document in the form of the vectors: maps without text keys as lists of pairs."""
    if isinstance(value, dict):
        if any(not isinstance(key, str) for key in value):
            return [[vector_key(key), as_vector(member)] for key, member in value.items()]
        return {name: as_vector(member) for name, member in value.items()}
    return [as_vector(member) for member in value] if isinstance(value, list) else value


def vector_key(key):
    if isinstance(key, MessageQueue):
        return {"brokerName": key.broker, "queueId": key.queue_id, "topic": key.topic}
    return key


def integer_keys(value):
    """The quoted keys of a standard route as the vectors give them."""
    if isinstance(value, dict):
        if value and all(name.isdigit() for name in value):
            return [[int(name), integer_keys(member)] for name, member in value.items()]
        return {name: integer_keys(member) for name, member in value.items()}
    return [integer_keys(member) for member in value] if isinstance(value, list) else value


#: Java class -> (decode, encode); encode(decode(x)) must say the same as x.
TYPED = {
    "BatchAckMessageRequestBody": (
        bodies.decode_batch_ack,
        lambda value: bodies.encode_batch_ack(*value),
    ),
    "BrokerMemberGroup": (bodies.decode_broker_members, bodies.encode_broker_members),
    "ClusterInfo": (bodies.decode_cluster, bodies.encode_cluster),
    "ConsumeMessageDirectlyResult": (bodies.decode_consume_result, bodies.encode_consume_result),
    "ConsumeStats": (bodies.decode_consume_stats, bodies.encode_consume_stats),
    "ConsumerConnection": (
        bodies.decode_consumer_connection,
        bodies.encode_consumer_connection,
    ),
    "ConsumerOffsetSerializeWrapper": (
        bodies.decode_consumer_offsets,
        bodies.encode_consumer_offsets,
    ),
    "ConsumerRunningInfo": (bodies.decode_running_info, bodies.encode_running_info),
    "DataVersion": (bodies.decode_data_version, bodies.encode_data_version),
    "GetConsumerListByGroupResponseBody": (
        bodies.decode_consumer_list,
        bodies.encode_consumer_list,
    ),
    "GetConsumerStatusBody": (bodies.decode_consumer_status, bodies.encode_consumer_status),
    "GroupList": (bodies.decode_group_list, bodies.encode_group_list),
    "HeartbeatData": (bodies.decode_heartbeat, bodies.encode_heartbeat),
    "KVTable": (bodies.decode_kv_table, bodies.encode_kv_table),
    "LockBatchRequestBody": (bodies.decode_lock, bodies.encode_lock),
    "LockBatchResponseBody": (bodies.decode_locked, bodies.encode_locked),
    "OffsetSerializeWrapper": (bodies.decode_offset_file, bodies.encode_offset_file),
    "ProducerConnection": (
        bodies.decode_producer_connection,
        bodies.encode_producer_connection,
    ),
    "QueryAssignmentRequestBody": (
        bodies.decode_assignment_query,
        bodies.encode_assignment_query,
    ),
    "QueryAssignmentResponseBody": (bodies.decode_assignments, bodies.encode_assignments),
    "RegisterBrokerBody": (bodies.decode_registration, bodies.encode_registration),
    "ResetOffsetBody": (bodies.decode_reset_offsets, bodies.encode_reset_offsets),
    "SetMessageRequestModeRequestBody": (
        bodies.decode_request_mode,
        bodies.encode_request_mode,
    ),
    "SubscriptionGroupWrapper": (bodies.decode_group_table, bodies.encode_group_table),
    "TopicConfigSerializeWrapper": (bodies.decode_topic_table, bodies.encode_topic_table),
    "TopicList": (bodies.decode_topic_list, bodies.encode_topic_list),
    "TopicRouteData": (
        lambda data: bodies.decode_route("T", data),
        bodies.encode_route,
    ),
    "TopicStatsTable": (bodies.decode_topic_stats, bodies.encode_topic_stats),
    "UnlockBatchRequestBody": (bodies.decode_lock, bodies.encode_lock),
}

#: Members that the typed values leave out on purpose: sent with their defaults, never used.
NOT_KEPT = {
    "enableActingMaster",
    "zoneName",
    "topicSysFlag",
    "topicQueueMappingByBroker",
    "filterServerTable",
    "filterServerList",
    "mappingDataVersion",
    "topicQueueMappingDetailMap",
    "topicQueueMappingInfoMap",
    "brokerAddr",
    "namespace",
}


def covers(ours, java):
    """Whether all that Java wrote is in ours too; we may add members with their defaults."""
    if isinstance(java, dict):
        if not isinstance(ours, dict):
            return False
        ours = {str(key): member for key, member in ours.items()}
        return all(
            key in NOT_KEPT or (str(key) in ours and covers(ours[str(key)], member))
            for key, member in java.items()
        )
    if isinstance(java, list):
        return len(ours) == len(java) and all(
            any(covers(one, other) for one in ours) for other in java
        )
    return ours == java


def check_body(line):
    given, data = line["in"], bytes.fromhex(line["hex"])
    if given.get("form") == "compressed":
        check_compressed_registration(line, data)
        return
    document = read_json(data)
    read = as_vector(document)
    assert read == given["value"] or integer_keys(document) == given["value"]
    check_typed_body(given["class"], data, document)


def check_typed_body(name, data, document):
    if name == "ResetOffsetBodyForC":
        entries = document["offsetTable"]
        expected = {
            MessageQueue(one["topic"], one["brokerName"], one["queueId"]): one["offset"]
            for one in entries
        }
        assert bodies.decode_reset_offsets(data) == expected
        return
    if name == "CheckClientRequestBody":
        subscription = bodies.decode_check_client(data)
        written = bodies.encode_check_client(document["clientId"], document["group"], subscription)
        assert covers(read_json(written), document)
        return
    decode, encode = TYPED[name]
    value = decode(data)
    written = encode(value)
    ours = read_json(written)
    assert covers(ours.get("brokerMemberGroup", ours), document)
    assert decode(written) == value


def check_compressed_registration(line, data):
    version = 403 if line.get("version") == OLD else 513
    table = bodies.decode_registration(data, compressed=True)
    wrapper = line["in"]["value"]["topicConfigSerializeWrapper"]
    assert covers(msgspec.to_builtins(table)["dataVersion"], wrapper["dataVersion"])
    # The compact text has neither the order flag nor the system flag.
    for name, config in wrapper["topicConfigTable"].items():
        kept = {key: one for key, one in config.items() if key not in {"order", "topicSysFlag"}}
        assert covers(msgspec.to_builtins(table.topics[name]), kept)
    assert set(table.topics) == set(wrapper["topicConfigTable"])
    ours = bodies.encode_registration(table, compressed=True, version=version)
    assert bodies.decode_registration(ours, compressed=True) == table
    # 4.9 has no stateVersion in its data version, and ignores ours.
    if version > 403 and not line["in"]["value"]["filterServerList"]:
        assert sorted(zlib.decompress(ours)) == sorted(zlib.decompress(data))


def check_body_read(line):
    name, text = line["in"]["class"], line["in"]["text"]
    data = text.encode()
    if name == "RemotingCommand":
        check_command_read(data, line["out"])
    elif line.get("error"):
        check_refused_form(name, text, data)
    elif name == "BrokerData":
        broker = bodies.decode_broker_members(data)
        assert sorted(broker.addresses.items()) == sorted(map(tuple, line["out"]["brokerAddrs"]))
    else:
        decode, encode = TYPED[name]
        ours = read_json(encode(decode(data)))
        if "lockOkMQSet" in text and line["version"] == OLD:
            return  # fastjson 1 reads any capitalisation; nobody writes that one
        assert covers(ours, read_json(vector_text(line["out"]).encode()))


def check_command_read(data, out):
    frame = len(data).to_bytes(4, "big") + data
    command = decode_command(frame)
    fields = {name: value for name, value in (out["extFields"] or {}).items() if value is not None}
    language = out["language"]
    if language is None:  # Java does not know it; we keep what was written
        assert command.language not in codes.LANGUAGE_CODES
        language = command.language
    assert command == Command(
        out["code"],
        fields,
        b"",
        out["opaque"],
        out["flag"],
        out["remark"],
        language,
        out["version"],
    )


def check_refused_form(name, text, data):
    """Forms that some release cannot read: we may read them, but must never write them."""
    if text == '{"offsetTable":[]}':
        assert bodies.decode_reset_offsets(data) == {}
        return
    value = TYPED[name][0](data)
    assert b'"{' not in TYPED[name][1](value)


def vector_text(value):
    """A vector's value as a document, pairs turned back into maps with object keys."""
    if isinstance(value, dict):
        members = ",".join(f"{json.dumps(key)}:{vector_text(one)}" for key, one in value.items())
    elif isinstance(value, list) and value and all(is_pair(one) for one in value):
        members = ",".join(f"{json.dumps(key)}:{vector_text(one)}" for key, one in value)
    elif isinstance(value, list):
        return f"[{','.join(map(vector_text, value))}]"
    else:
        return json.dumps(value)
    return f"{{{members}}}"


def is_pair(value):
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], dict | int)


def check_fingerprint(line):
    assert bodies.heartbeat_fingerprint(line["in"]["text"].encode()) == line["out"]


def check_topic_config_text(line):
    given, out = line["in"], line["out"]
    old = line.get("version") == OLD
    if "text" not in given:
        config = msgspec.convert(given, bodies.TopicConfig)
        assert bodies.format_topic_config(config, attributes=not old) == out
        return
    try:
        config = bodies.parse_topic_config(given["text"])
    except ProtocolError:
        assert out is None
        return
    if out is None:
        assert old  # which knows no attributes
    else:
        assert covers(msgspec.to_builtins(config), out)


CHECKS = {
    "body": check_body,
    "body_read": check_body_read,
    "fingerprint": check_fingerprint,
    "topic_config_text": check_topic_config_text,
}


@pytest.mark.rule("W3.0d", "W3.1a", "W3.2", "W3.4a", "W3.5a", "W3.6", "W3.8", "W6.2")
@pytest.mark.parametrize("kind", CHECKS)
def test_every_line_of_a_kind_agrees_with_java(kind, vectors_dir):
    failures = []
    for line in lines_by_kind(vectors_dir / "wire.jsonl")[kind]:
        try:
            CHECKS[kind](line)
        except Exception as error:  # noqa: BLE001 - every line is tried, whatever one does
            failures.append(f"line {line['number']}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} lines differ\n" + "\n".join(failures[:5])
