"""A program that sends while it is interrupted over and over, as by someone who leans on Ctrl-C.

Prints one JSON object: what became of the messages. A process of its own, because interrupts go to
the main thread, which in a test is the test runner's.
"""

import faulthandler
import json
import random
import signal
import sys
import threading
import time
from typing import Any

from gimbalmq import Message, Producer, PullConsumer
from gimbalmq.broker import EmbeddedCluster

FOR_S = 20.0
KINDS = {
    "plain": ({}, {}),
    "keyed": ({}, {"sharding_key": "one"}),
    "batched": ({"batching": True}, {}),
    "waiting": ({"back_pressure_for_async_send_num": 40}, {}),
}


class Interrupts:
    """Interrupts that come at random while they are wanted, for a while or that many of them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._until_s = time.monotonic() + FOR_S
        self._wanted = False
        self._main_thread = threading.get_ident()
        signal.signal(signal.SIGINT, self._come)
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        pauses = random.Random(1)
        while self.come:
            time.sleep(pauses.uniform(0.0, 0.001))
            signal.pthread_kill(self._main_thread, signal.SIGINT)

    def _come(self, *_: object) -> None:
        if self._wanted:
            self._wanted = False
            self._count -= 1
            raise KeyboardInterrupt

    @property
    def come(self) -> bool:
        """Whether more of them will come."""
        return self._count > 0 and time.monotonic() < self._until_s

    def want(self, *, wanted: bool) -> None:
        self._wanted = wanted


def send_and_be_interrupted(producer: Producer, wishes: dict[str, str], count: int) -> list[Any]:
    """Send until the interrupts have come; returns the futures that were not cut off."""
    futures: list[Any] = []
    interrupts = Interrupts(count)
    while interrupts.come:
        try:
            interrupts.want(wanted=True)
            while interrupts.come:
                futures.append(producer.send_async(Message("orders", b"x", **wishes)))
            interrupts.want(wanted=False)
        except KeyboardInterrupt:
            pass
    return futures


def stored_ids(nameserver: str) -> list[str]:
    ids = []
    with PullConsumer("readers", nameserver=nameserver) as consumer:
        for queue in consumer.queues("orders"):
            offset = 0
            while (result := consumer.pull(queue, offset)).messages:
                ids += [message.message_id for message in result.messages]
                offset = result.next_offset
    return ids


def main(kind: str, count: int) -> None:
    options, wishes = KINDS[kind]
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=4)
        producer = Producer("shop", nameserver=cluster.nameserver, **options).start()
        producer.send_async(Message("orders", b"first")).result(10.0)
        futures = send_and_be_interrupted(producer, wishes, count)
        producer.flush(20.0)
        ids = [future.result(0).message_id for future in futures]
        stored = stored_ids(cluster.nameserver)
        outcome = {
            "sent": len(ids),
            "lost": len(set(ids) - set(stored)),
            "twice": len(stored) - len(set(stored)),
            "in_flight": producer.stats().in_flight,
        }
        producer.stop()
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(100.0, exit=True)  # where it hangs, if it does
    main(sys.argv[1], int(sys.argv[2]))
