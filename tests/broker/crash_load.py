"""Load on a broker that is going to be killed: what it acknowledged, and what a restart must show.

Senders and a committer talk to it on connections of their own until it stops answering. Only what
was answered counts; what was under way when it died may be there or not.
"""

from __future__ import annotations

import random
import threading

from gimbalmq.errors import TransportError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.transport.blocking import BlockingConnection
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.command import Command
from gimbalmq.wire.headers import pull_request, send_request
from gimbalmq.wire.record import decode_records

QUEUES = 4
GROUP = "billing"


def call(connection, code, **fields):
    return connection.call(Command(code, {k: str(v) for k, v in fields.items()}), 10.0)


class Load:
    """Three senders and one committer; `acknowledged` is what was answered."""

    def __init__(self, address, topic, broker, seed):
        self.address, self.topic, self.broker, self.seed = address, topic, broker, seed
        #: (queue id, offset) to body.
        self.acknowledged = {}
        self._enough = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._run, args=(self._send, number)) for number in range(3)
        ]
        self._threads.append(threading.Thread(target=self._run, args=(self._commit, 9)))

    def start(self):
        for thread in self._threads:
            thread.start()

    def wait_sent(self, count):
        for _ in range(count):
            assert self._enough.acquire(timeout=30.0), "the broker takes no messages"

    def join(self):
        for thread in self._threads:
            thread.join(30.0)
            assert not thread.is_alive()

    def _run(self, work, number):
        chance = random.Random(f"{self.seed}-{number}")
        try:
            with BlockingConnection(self.address) as connection:
                for turn in range(1 << 30):
                    work(connection, chance, f"{self.seed}-{number}-{turn}")
        except TransportError:
            return  # it was killed

    def _send(self, connection, chance, key):
        queue = MessageQueue(self.topic, self.broker, chance.randrange(QUEUES))
        body = key.encode() + b"." * chance.randrange(600)
        request = send_request(
            group="shop",
            queue=queue,
            body=body,
            properties=f"UNIQ_KEY\x01{key}\x02KEYS\x01{key}\x02",
            born_timestamp_ms=1,
        )
        answer = connection.call(request, 10.0)
        assert answer.code == 0, answer.remark
        self.acknowledged[queue.queue_id, int(answer.fields["queueOffset"])] = body
        self._enough.release()

    def _commit(self, connection, chance, _key):
        queue_id = chance.randrange(QUEUES)
        place = {"topic": self.topic, "queueId": queue_id}
        reached = int(call(connection, RequestCode.GET_MAX_OFFSET, **place).fields["offset"])
        answer = call(
            connection,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=GROUP,
            commitOffset=reached,
            **place,
        )
        assert answer.code == 0, answer.remark


class Recovered:
    """What a broker shows after its restart."""

    def __init__(self, address, topic, broker):
        self.broker, self.topic = broker, topic
        self.bodies, self.places, self.maximum, self.committed = {}, {}, {}, {}
        with BlockingConnection(address) as connection:
            for queue_id in range(QUEUES):
                self._read(connection, MessageQueue(topic, broker, queue_id))

    def _read(self, connection, queue):
        place = {"topic": queue.topic, "queueId": queue.queue_id}
        end = int(call(connection, RequestCode.GET_MAX_OFFSET, **place).fields["offset"])
        self.maximum[queue.queue_id] = end
        found = call(connection, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, **place)
        if found.code == 0:
            self.committed[queue.queue_id] = int(found.fields["offset"])
        offset = 0
        while offset < end:
            request = pull_request(
                group="reader", queue=queue, offset=offset, sys_flag=4, expression="*"
            )
            answer = connection.call(request, 10.0)
            assert answer.code == 0, (answer.code, answer.remark)
            messages = decode_records(answer.body, self.broker)
            assert [one.queue_offset for one in messages] == list(
                range(offset, offset + len(messages))
            )
            for one in messages:
                self.bodies[queue.queue_id, one.queue_offset] = bytes(one.body)
                self.places[queue.queue_id, one.queue_offset] = one.physical_offset
            offset += len(messages)

    def found_by_key(self, address, keys):
        """Physical offsets of the messages that the key index gives."""
        found = {}
        with BlockingConnection(address) as connection:
            for key in keys:
                answer = call(
                    connection,
                    RequestCode.QUERY_MESSAGE,
                    topic=self.topic,
                    key=key,
                    maxNum=4,
                    beginTimestamp=0,
                    endTimestamp=1 << 60,
                )
                assert answer.code == 0, (key, answer.remark)
                found[key] = [
                    one.physical_offset for one in decode_records(answer.body, self.broker)
                ]
        return found
