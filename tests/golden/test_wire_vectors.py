"""Every line of wire.jsonl: what the Java classes of 4.9.5 and 5.5.0 write and read.

One check per kind; CHECKS and ELSEWHERE together must name every kind of the file. A check gets
one line and asserts; all lines of a kind are tried, and the first few that fail are shown.
"""

from __future__ import annotations

import functools
import ipaddress
import json
from pathlib import Path

import pytest

from gimbalmq.core.selection import queue_by_key
from gimbalmq.errors import ConfigurationError
from gimbalmq.model.java import hash_code
from gimbalmq.model.message import RESERVED_PROPERTIES
from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import codes, names, pop
from gimbalmq.wire.acl import UNIQUE_KEY_QUERY, Credentials, sign, signature, signed_content
from gimbalmq.wire.batch import BatchEntry, decode_batch, encode_batch
from gimbalmq.wire.columns import decode_columns
from gimbalmq.wire.command import Command, decode_command, encode_command
from gimbalmq.wire.header_fields import (
    encode_fields,
    parse_fields,
    request_fields,
    response_fields,
)
from gimbalmq.wire.ids import OffsetId, format_offset_id, parse_offset_id, parse_unique_id
from gimbalmq.wire.properties import (
    decode_properties,
    encode_properties,
    find_property,
    parse_properties,
)
from gimbalmq.wire.record import decode_records, encode_record
from gimbalmq.wire.subscription import parse_tags

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


def without_nulls(fields):
    return {name: value for name, value in (fields or {}).items() if value is not None}


def command_of(header) -> Command:
    return Command(
        header["code"],
        without_nulls(header["extFields"]),
        bytes.fromhex(header["body"] or ""),
        header["opaque"],
        header["flag"],
        header["remark"],
        header["language"],
        header["version"],
    )


# Constants


def check_constants(line):
    CONSTANTS[line["in"]["class"]](line["out"], old=line.get("version") == OLD)


def check_request_codes(out, *, old):
    assert out.items() <= {code.name: code.value for code in codes.RequestCode}.items()


def check_response_codes(out, *, old):
    # 4.9 gives three codes another meaning; the names of 5.x are kept.
    same = {name: code for name, code in out.items() if not (old and code in {209, 210, 211})}
    assert same.items() <= {code.name: code.value for code in codes.ResponseCode}.items()


def check_languages(out, *, old):
    assert out.items() <= codes.LANGUAGE_CODES.items()


def check_header_types(out, *, old):
    assert out == {"JSON": 0, "ROCKETMQ": 1}
    binary = encode_command(Command(1), binary=True)
    assert (encode_command(Command(1))[4], binary[4]) == (out["JSON"], out["ROCKETMQ"])


def check_compressions(out, *, old):
    assert out == {name: codes.CompressionType[name].value for name in out}


def check_pull_flags(out, *, old):
    ours = {f"FLAG_{flag.name}": flag.value for flag in codes.PullFlag}
    ours["FLAG_LITE_PULL_MESSAGE"] = ours.pop("FLAG_LITE_PULL")
    assert out == ours


def check_perms(out, *, old):
    assert {f"PERM_{perm.name}": perm.value for perm in codes.Perm}.items() <= out.items()


def check_sys_flags(out, *, old):
    flags = codes.SysFlag
    assert out == {
        "COMPRESSED_FLAG": flags.COMPRESSED,
        "MULTI_TAGS_FLAG": flags.MULTI_TAGS,
        "TRANSACTION_NOT_TYPE": 0,
        "TRANSACTION_PREPARED_TYPE": flags.TRANSACTION_PREPARED,
        "TRANSACTION_COMMIT_TYPE": flags.TRANSACTION_COMMIT,
        "TRANSACTION_ROLLBACK_TYPE": flags.TRANSACTION_ROLLBACK,
        "BORNHOST_V6_FLAG": flags.BORN_HOST_V6,
        "STOREHOSTADDRESS_V6_FLAG": flags.STORE_HOST_V6,
        "NEED_UNWRAP_FLAG": flags.NEED_UNWRAP,
        "INNER_BATCH_FLAG": flags.INNER_BATCH,
        "COMPRESSION_LZ4_TYPE": codes.CompressionType.LZ4,
        "COMPRESSION_ZSTD_TYPE": codes.CompressionType.ZSTD,
        "COMPRESSION_ZLIB_TYPE": codes.CompressionType.ZLIB,
        "COMPRESSION_TYPE_COMPARATOR": flags.COMPRESSION_MASK,
    }


def check_versions(out, *, old):
    for name, ordinal in out["ordinals"].items():
        if name == "HIGHER_VERSION":
            assert codes.version_name(ordinal) == "higher"
            continue
        ours = codes.version_name(ordinal)
        assert "V" + ours.replace(".", "_").replace("-", "_") == name
        assert codes.version_ordinal(ours) == ordinal


def check_reserved_properties(out, *, old):
    ours = {"KEY_SEPARATOR", "INDEX_KEY_TYPE", "INDEX_TAG_TYPE", "INDEX_UNIQUE_TYPE"}
    reserved = {
        value
        for name, value in out.items()
        if name not in ours and not name.startswith(("TIMER_ENGINE", "PROPERTY_TRANSIENT"))
    }
    assert reserved <= RESERVED_PROPERTIES


CONSTANTS = {
    "RequestCode": check_request_codes,
    "ResponseCode": check_response_codes,
    "LanguageCode": check_languages,
    "SerializeType": check_header_types,
    "CompressionType": check_compressions,
    "PullSysFlag": check_pull_flags,
    "PermName": check_perms,
    "MessageSysFlag": check_sys_flags,
    "MQVersion": check_versions,
    "MessageConst": check_reserved_properties,
}


# Frames and headers


def check_frame(line):
    data = bytes.fromhex(line["hex"])
    assert decode_command(data[4:]) == command_of(line.get("out", line["in"]))
    header = line["in"]
    binary = header["serialize"] != "JSON"
    try:
        frame = encode_command(command_of(header), binary=binary)
    except ConfigurationError:
        # Java cuts such a code off and asks for something else; we refuse.
        assert binary
        assert not -(1 << 15) <= header["code"] < 1 << 15
        return
    if binary and None in (header["extFields"] or {}).values():
        assert decode_command(frame[4:]) == decode_command(data[4:])
    elif binary or (line.get("version") != OLD and header["extFields"] is not None):
        assert frame == data
    else:
        assert decode_command(frame[4:]) == decode_command(data[4:])


def specs_of(given):
    code = given.get("code")
    return request_fields(codes.RequestCode(code)) if code else response_fields(given["class"])


def check_header_fields(line):
    specs = specs_of(line["in"])
    for name, text in line["out"].items():
        kind, need = text.split()
        # An enum goes out by its name, that is as text.
        kind = "S" if kind == "BoundaryType" else kind
        assert (specs[name].kind, specs[name].required) == (kind, need == "R"), name


def check_header(line):
    fields = line["in"]["fields"]
    assert encode_fields(fields) == line["extFields"]
    sent = without_nulls(line.get("frameExtFields", line["extFields"]))
    command = decode_command(bytes.fromhex(line["hex"])[4:])
    assert command.fields == sent
    assert (command.opaque, command.is_response) == (
        line["in"]["opaque"],
        line["in"]["response"],
    )
    expected = {name: value for name, value in fields.items() if name in sent}
    assert parse_fields(specs_of(line["in"]), command.fields) == expected


def check_acl(line):
    given, out = line["in"], line["out"]
    body = bytes.fromhex(given["body"] or "")
    sent = out["extFields"]
    content = signed_content(sent, body)
    assert content.hex() == out["content"]
    assert signature(content, given["secretKey"]) == out["signature"]
    excluded = given["version"] <= 399 or line.get("version") == OLD
    without = frozenset({UNIQUE_KEY_QUERY} if excluded else ())
    server = signed_content(sent, body, without=without)
    assert server.hex() == out["serverContent"]
    assert (server == content) == out["accepted"]
    assert decode_command(bytes.fromhex(line["hex"])[4:]).fields == sent
    command = Command(given["code"], dict(given["extFields"]), body, version=given["version"])
    credentials = Credentials(given["accessKey"], given["secretKey"], given["securityToken"] or "")
    signed = sign(command, credentials)
    if UNIQUE_KEY_QUERY in given["extFields"]:
        # Java's own signature is refused by some releases; ours must fit what all of them check.
        portable = signed_content(sent, body, without=frozenset({UNIQUE_KEY_QUERY}))
        assert signed.version <= 399
        assert signed.fields["Signature"] == signature(portable, given["secretKey"])
    else:
        assert signed.fields == sent


# Records


RECORD_FIELDS = {
    "queueId": "queue_id",
    "flag": "flag",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "sysFlag": "sys_flag",
    "bodyCRC": "body_crc",
    "bornTimestamp": "born_timestamp_ms",
    "storeTimestamp": "store_timestamp_ms",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "topic": "record_topic",
}


def check_record(line):
    data = bytes.fromhex(line["hex"])
    messages = decode_records(data, "broker-a")
    left = iter(messages)
    position = 0
    for record, out in zip(line["in"]["records"], line["out"], strict=True):
        if "inner" in out:
            check_inner_batch(left, record, out["inner"])
        else:
            check_message(next(left), record, out)
        size = out["storeSize"]
        if record["compression"] is None and "inner" not in out:
            trailing = line.get("version") != OLD
            assert encoded(record, trailing=trailing) == data[position : position + size]
        position += size
    assert next(left, None) is None
    assert position == len(data)
    check_columns(data, messages)


def check_message(message, record, out):
    for java, ours in RECORD_FIELDS.items():
        assert getattr(message, ours) == record[java], java
    assert message.body.hex() == record["body"]
    born_host = ipaddress.ip_address(record["bornHost"])
    assert message.born_host == f"{born_host}:{record['bornPort']}"
    store_host = ipaddress.ip_address(record["storeHost"])
    assert message.store_host == f"{store_host}:{record['storePort']}"
    assert message.offset_message_id == out["offsetMsgId"]
    assert message.message_id == out["msgId"]
    assert message.store_size == out["storeSize"]
    assert message.properties == (out.get("properties", record["properties"]) or {})


def check_inner_batch(left, record, inner):
    for index, expected in enumerate(inner):
        message = next(left)
        assert message.queue_offset == record["queueOffset"] + index
        assert message.flag == expected["flag"]
        assert message.body.hex() == expected["body"]
        properties = {name: one for name, one in (expected["properties"] or {}).items() if one}
        assert message.properties == properties
        assert message.physical_offset == record["physicalOffset"]


def encoded(record, *, trailing):
    properties = encode_properties(record["properties"] or {})
    return encode_record(
        topic=record["topic"],
        body=bytes.fromhex(record["body"]),
        properties=properties if trailing else properties.removesuffix(b"\x02"),
        queue_id=record["queueId"],
        queue_offset=record["queueOffset"],
        physical_offset=record["physicalOffset"],
        sys_flag=record["sysFlag"],
        flag=record["flag"],
        born_timestamp_ms=record["bornTimestamp"],
        born_host=(record["bornHost"], record["bornPort"]),
        store_timestamp_ms=record["storeTimestamp"],
        store_host=(record["storeHost"], record["storePort"]),
        reconsume_times=record["reconsumeTimes"],
        prepared_transaction_offset=record["preparedTransactionOffset"],
    )


def check_columns(data, messages):
    """The columnar decoder must agree with the views."""
    columns = ["topic", "message_id", "body", "queue_offset", "properties", "tags", "born_host"]
    rows = decode_columns([(data, "broker-a")], columns).to_pylist(maps_as_pydicts="strict")
    assert rows == [
        {
            "topic": message.record_topic,
            "message_id": message.message_id,
            "body": message.body,
            "queue_offset": message.queue_offset,
            "properties": message.properties,
            "tags": message.tags,
            "born_host": message.born_host,
        }
        for message in messages
    ]


def check_batch(line):
    entries = []
    for message in line["in"]["messages"]:
        properties = encode_properties(message["properties"] or {})
        if line.get("version") == OLD:
            properties = properties.removesuffix(b"\x02")
        entries.append(BatchEntry(bytes.fromhex(message["body"]), properties, message["flag"]))
    data = bytes.fromhex(line["hex"])
    assert encode_batch(entries) == data
    assert decode_batch(data) == entries


def check_properties(line):
    properties = without_nulls(line["in"]["properties"])
    data = bytes.fromhex(line["hex"])
    ours = encode_properties(properties)
    assert (ours.removesuffix(b"\x02") if line.get("version") == OLD else ours) == data
    kept = {name: value for name, value in properties.items() if name and value}
    assert decode_properties(data) == kept


def check_properties_parse(line):
    text = line["in"]["text"]
    assert parse_properties(text) == line["out"]
    for name in {*line["out"], "a", "b", "c", " ", "="}:
        value = find_property(text.encode(), name.encode())
        assert (None if value is None else value.decode()) == line["out"].get(name)


def check_message_id(line):
    host, port, offset = (line["in"][name] for name in ("host", "port", "offset"))
    assert format_offset_id(host, port, offset) == line["out"]
    address = str(ipaddress.ip_address(host))
    assert parse_offset_id(line["out"]) == OffsetId(address, port, offset)


def check_unique_id(line):
    parsed = parse_unique_id(line["in"]["id"])
    out = line["out"]
    assert ipaddress.ip_address(parsed.ip).exploded == out["ip"]
    assert (parsed.pid, parsed.ms_since_month_start) == (out["pid"], out["msSinceMonthStart"])


# Small rules


def check_string_hash(line):
    assert hash_code(line["in"]["text"]) == line["out"]


def check_select_by_hash(line):
    queues = [MessageQueue("t", "b", number) for number in range(line["in"]["queues"])]
    assert queue_by_key(queues, line["in"]["arg"]).queue_id == line["out"]


def check_crc32(line):
    body = bytes.fromhex(line["in"]["body"])
    assert decode_records(encode_record(topic="t", body=body), "b")[0].body_crc == line["out"]


def check_perm(line):
    perm, out = line["in"]["perm"], line["out"]
    assert codes.perm_text(perm) == out["text"]
    assert bool(perm & codes.Perm.READ) == out["readable"]
    assert bool(perm & codes.Perm.WRITE) == out["writeable"]
    assert bool(perm & codes.Perm.INHERIT) == out["inherited"]
    if "priority" in out:
        assert bool(perm & codes.Perm.PRIORITY) == out["priority"]


def check_names(line):
    group, topic, cluster = (line["in"][name] for name in ("group", "topic", "cluster"))
    first = names.pop_retry_topic(topic, group)
    second = names.pop_retry_topic(topic, group, second_form=True)
    ours = {
        "retryTopic": names.retry_topic(group),
        "dlqTopic": names.dlq_topic(group),
        "replyTopic": names.reply_topic(cluster),
        "popRetryTopicV1": first,
        "popRetryTopicV2": second,
        "normalTopicOfV1": names.normal_topic(first, group),
        "normalTopicOfV2": names.normal_topic(second, group),
    }
    assert line["out"].items() <= ours.items()


def check_namespace(line):
    namespace, resource = line["in"]["namespace"], line["in"]["resource"]
    assert line["out"] == {
        "wrap": names.with_namespace(namespace, resource),
        "wrapRetry": names.with_namespace_and_retry(namespace, resource),
        "without": names.without_namespace(resource),
        "withoutGiven": names.without_namespace(resource, namespace) if namespace else resource,
        "namespaceOf": names.namespace_of(resource),
    }


def check_topic_check(line):
    name, out = line["in"]["name"], line["out"]
    old = line["version"] == OLD
    assert out["clientTopic"] == names.is_topic(name)
    assert out["clientGroup"] == names.is_group(name, 255 if old else names.GROUP_CHARS_MAX)
    assert out["brokerTopic"] == (names.is_topic(name) if old else names.is_stored_topic(name))
    assert out.get("brokerGroup", names.is_group(name)) == names.is_group(name)
    if old and (name == "CHECKPOINT_TOPIC" or "ROCKSDB" in name):
        return  # system topics since 5.x, kept from clients with any broker
    assert out["systemTopic"] == names.is_system_topic(name)
    assert out["sendForbidden"] == (name in names.SEND_FORBIDDEN_TOPICS)


def check_subscription(line):
    try:
        parsed = parse_tags("t", line["in"]["expression"], 0)
    except ConfigurationError:
        assert line["error"]
        return
    out = line["out"]
    assert parsed.expression == out["subString"]
    assert parsed.tags == set(out["tagsSet"])
    assert parsed.codes == set(out["codeSet"])
    assert (parsed.expression_type, parsed.class_filter_mode) == (
        out["expressionType"],
        out["classFilterMode"],
    )


def check_pop_text(line):
    given, out = line["in"], line["out"]
    handle = pop.PopHandle(
        given["ckOffset"],
        given["popTime"],
        given["invisibleTime"],
        given["reviveQid"],
        pop.retry_digit(given["topic"]),
        given["brokerName"],
        given["queueId"],
        given["queueOffset"],
    )
    assert str(handle) == out["handle"]
    assert pop.PopHandle.parse(out["handle"]) == handle
    queues = [(pop.retry_digit(one["topic"]), one["queueId"], one) for one in given["queues"]]
    starts = [(digit, number, one["startOffset"]) for digit, number, one in queues]
    assert pop.format_starts(starts) == out["startOffsetInfo"]
    offsets = [(digit, number, one["offsets"]) for digit, number, one in queues]
    assert pop.format_offsets(offsets) == out["msgOffsetInfo"]
    counts = [
        (digit, number, offset, one["orderCount"])
        for digit, number, one in queues
        for offset in (None, one["startOffset"])
    ]
    assert pop.format_counts(counts) == out["orderCountInfo"]
    parsed = pop.parse_starts(out["startOffsetInfo"])
    assert {f"{d}@{q}": o for (d, q), o in parsed.items()} == out["startOffsets"]
    listed = pop.parse_offsets(out["msgOffsetInfo"])
    assert {f"{d}@{q}": o for (d, q), o in listed.items()} == out["msgOffsets"]
    counted = pop.parse_counts(out["orderCountInfo"])
    assert {
        f"{d}@{q}" if o is None else f"{d}@qo{q}%{o}": n for (d, q, o), n in counted.items()
    } == out["orderCounts"]


def check_recall_handle(line):
    handle = pop.RecallHandle(
        *(line["in"][name] for name in ("topic", "brokerName", "timestamp", "messageId"))
    )
    assert str(handle) == line["out"]
    assert pop.RecallHandle.parse(line["out"]) == handle


CHECKS = {
    "constants": check_constants,
    "frame": check_frame,
    "header_fields": check_header_fields,
    "header": check_header,
    "record": check_record,
    "batch": check_batch,
    "properties": check_properties,
    "properties_parse": check_properties_parse,
    "message_id": check_message_id,
    "unique_id": check_unique_id,
    "string_hash": check_string_hash,
    "select_by_hash": check_select_by_hash,
    "crc32": check_crc32,
    "acl": check_acl,
    "perm": check_perm,
    "names": check_names,
    "namespace": check_namespace,
    "topic_check": check_topic_check,
    "subscription": check_subscription,
    "pop_text": check_pop_text,
    "recall_handle": check_recall_handle,
}

#: Kinds that are checked by another file next to this one.
ELSEWHERE = {
    "body": "test_body_vectors.py",
    "body_read": "test_body_vectors.py",
    "fingerprint": "test_body_vectors.py",
    "topic_config_text": "test_body_vectors.py",
    "latency": "test_send_vectors.py",
    "select_queue": "test_send_vectors.py",
    "delay_levels": "test_delay_vectors.py",
    "retry_delay": "test_delay_vectors.py",
    "schedule": "test_delay_vectors.py",
}


@pytest.mark.rule(
    "W1.2d",
    "W1.5",
    "W2.0",
    "W2.1a",
    "W3.3a",
    "W3.3b",
    "W3.3c",
    "W3.3d",
    "W4.1a",
    "W4.1d",
    "W4.3a",
    "W4.4b",
    "W4.6",
    "W4.8a",
    "W5.8",
    "W5.9",
    "W7",
)
@pytest.mark.parametrize("kind", CHECKS)
def test_every_line_of_a_kind_agrees_with_java(kind, vectors_dir):
    failures = []
    for line in lines_by_kind(vectors_dir / "wire.jsonl")[kind]:
        try:
            CHECKS[kind](line)
        except Exception as error:  # noqa: BLE001 - every line is tried, whatever one does
            failures.append(f"line {line['number']}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} lines differ\n" + "\n".join(failures[:5])


def test_every_kind_of_the_file_has_a_check_here_or_in_a_named_file(vectors_dir):
    kinds = set(lines_by_kind(vectors_dir / "wire.jsonl"))
    assert kinds - set(CHECKS) - set(ELSEWHERE) == set()


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_kind_that_is_checked_elsewhere_is_named_there(kind):
    path = Path(__file__).with_name(ELSEWHERE[kind])
    assert f'"{kind}"' in path.read_text("utf-8")
