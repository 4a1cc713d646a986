"""Inputs that mean harm, from a seed: requests, frames, bodies and records, mended a little wrong.

Half of what it makes is well-formed but absurd, the other half is well-formed bytes with a few of
them changed: pure noise is turned away at the door and tests nothing behind it.
"""

from __future__ import annotations

import random
import struct

from gimbalmq.model.queue import MessageQueue
from gimbalmq.wire import bodies
from gimbalmq.wire.batch import BatchEntry, encode_batch
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, encode_command
from gimbalmq.wire.header_fields import request_fields
from gimbalmq.wire.headers import pull_request, send_request
from gimbalmq.wire.record import encode_record

QUEUE = MessageQueue("orders", "broker-a", 1)
CODES = tuple(RequestCode)
TEXTS = (
    *("", " ", "orders", "orders", "billing", "%RETRY%billing", "%DLQ%billing", "TBW102"),
    *("broker-a", "DefaultCluster", "TagA || TagB", "*", "a > 1 AND b IS NOT NULL", "((((", "'"),
    *("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "../../etc/passwd"),
    *(
        "\x00",
        "\x01\x02",
        "名",
        "\ud7ff\U0001f980",
        "x" * 300,
        "TAG",
        "SQL92",
        "127.0.0.1:1",
        "null",
    ),
    *(
        "DELAY\x013\x02",
        "TIMER_DELAY_SEC\x015\x02",
        "TRAN_MSG\x01true\x02",
        "KEYS\x01a b\x02",
        "{}",
    ),
    *("1 2 3 4 5 6 7 8", "0 0 1 2 3 4 5 0", "C0A8000100002A9F0000000000000000", "[", '{"a":1}'),
)
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 32, 64, 800, -1, -2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
DOCUMENTS = (
    b"",
    b"{}",
    b"[]",
    b"null",
    (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"billing","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","unitMode":false,'
        b'"subscriptionDataSet":[{"topic":"orders","subString":"*","tagsSet":[],"codeSet":[],'
        b'"subVersion":1,"expressionType":"TAG","classFilterMode":false}]}],"producerDataSet":['
        b'{"groupName":"shop"}],"heartbeatFingerprint":7,"isWithoutSub":false}'
    ),
    (
        b'{"consumerGroup":"billing","clientId":"c","mqSet":[{"topic":"orders","brokerName":"broker-a",'
        b'"queueId":1}],"onlyThisBroker":false}'
    ),
    (
        b'{"topic":"orders","consumerGroup":"billing","clientId":"c","strategyName":"AVG",'
        b'"messageModel":"CLUSTERING"}'
    ),
    b'{"groupName":"billing","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}',
    (
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"orders":{"topicName":"orders",'
        b'"readQueueNums":4,"writeQueueNums":4,"perm":6}},"dataVersion":{"timestamp":1,"counter":1}}}'
    ),
    (
        b'{"brokerName":"broker-a","acks":[{"cg":"billing","t":"orders","r":"0","so":0,"q":1,"rq":0,'
        b'"pt":1,"it":60000,"b":"BQ=="}]}'
    ),
    b"maxMessageSize=1000\nnonsense",
)


class Hostile:
    """Makes inputs; equal seeds make equal ones."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def command(self) -> Command:
        """A request, or an answer that nobody asked for."""
        chance = self.chance
        if chance.random() < 0.15:
            return self._honest()
        code = chance.choice(CODES) if chance.random() < 0.95 else chance.choice(NUMBERS[:15])
        fields = {}
        if isinstance(code, RequestCode):
            for name, spec in request_fields(code).items():
                if chance.random() < 0.9:
                    fields[name] = self._value(spec.kind)
        if chance.random() < 0.05:
            fields[chance.choice(TEXTS)] = chance.choice(TEXTS)
        flag = chance.choices((0, FLAG_ONEWAY, FLAG_RESPONSE), (90, 7, 3))[0]
        return Command(int(code), fields, self.body(), chance.randrange(1, 1 << 31), flag)

    def frame(self) -> bytes:
        """A request as bytes, most often damaged."""
        command = self.command()
        fits = -(1 << 15) <= command.code < 1 << 15
        frame = encode_command(command, binary=fits and self.chance.random() < 0.5)
        return self.damaged(frame) if self.chance.random() < 0.7 else frame

    def body(self) -> bytes:
        """What a request carries."""
        chance = self.chance
        kind = chance.randrange(6)
        if kind == 0:
            return chance.randbytes(chance.randrange(200))
        if kind == 1:
            return self.damaged(self.batch())
        if kind == 2:
            return self.damaged(self.record())
        document = chance.choice(DOCUMENTS)
        return self.damaged(document) if kind == 3 else document

    def batch(self) -> bytes:
        """The body of a batch."""
        chance = self.chance
        return encode_batch(
            BatchEntry(chance.randbytes(chance.randrange(40)), b"KEYS\x01k\x02")
            for _ in range(chance.randrange(1, 4))
        )

    def record(self) -> bytes:
        """A stored message."""
        chance = self.chance
        return encode_record(
            topic="orders",
            body=chance.randbytes(chance.randrange(60)),
            queue_id=1,
            properties=b"TAGS\x01TagA\x02KEYS\x01k\x02",
        )

    def document(self) -> bytes:
        """A JSON body."""
        document = self.chance.choice(DOCUMENTS)
        return self.damaged(document) if self.chance.random() < 0.8 else document

    def damaged(self, data: bytes) -> bytes:
        """The same with bytes changed, cut out, doubled, or numbers made absurd."""
        chance, changed = self.chance, bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(changed) + 1)
            match chance.randrange(6):
                case 0:
                    changed[at : at + 1] = chance.randbytes(1)
                case 1:
                    changed[at : at + chance.randrange(1, 9)] = b""
                case 2:
                    changed[at:at] = chance.randbytes(chance.randrange(1, 9))
                case 3:
                    changed[at : at + 4] = struct.pack(">I", chance.randrange(1 << 32))
                case 4:
                    changed[at : at + 4] = struct.pack(">i", chance.choice((0, -1, 1, 2**31 - 1)))
                case _:
                    changed[at:at] = changed[at : at + chance.randrange(1, 30)]
        return bytes(changed)

    def _value(self, kind: str) -> str:
        chance = self.chance
        if kind == "B":
            return chance.choice(("true", "false", "maybe"))
        if kind == "S" or chance.random() < 0.05:
            return chance.choice(TEXTS)
        return str(chance.choice(NUMBERS) if chance.random() < 0.5 else chance.randrange(10))

    def _honest(self) -> Command:
        """What ordinary clients do, so that there is something to spoil."""
        chance = self.chance
        if chance.random() < 0.5:
            return send_request(
                group="shop",
                queue=QUEUE,
                body=b"honest",
                properties="KEYS\x01k\x02",
                born_timestamp_ms=1,
            )
        return pull_request(
            group="billing", queue=QUEUE, offset=chance.randrange(5), sys_flag=6, expression="*"
        )


#: Everything that reads a body, by name; each takes bytes.
BODY_READERS = {
    name: getattr(bodies, name)
    for name in sorted(bodies.__all__)
    if name.startswith("decode_") and name != "decode_route"
}
