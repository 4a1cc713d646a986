"""Keyed messages that never stop while members of a group, in processes of their own, come and go.

A key's messages are numbered. What listeners did is a history, which the checkers of the simulator
judge: each key is to them a queue, and a message's number its offset.
"""

import itertools
import threading
import time

from gimbalmq import Message, Producer, balance
from gimbalmq.model.queue import MessageQueue
from gimbalmq.testing.sim.history import Happened, History, Kind
from waiting import eventually

KEYS = 32
#: Between two messages: a queue of an ordered group takes one in `LISTENER_S`, and there are eight.
PAUSE_S = 0.01
LISTENER_S = 0.02
#: Now and then a Java member needs half a minute.
PATIENT_S = 90.0


class JavaMember:
    """A Java push consumer, in a process of its own."""

    def __init__(self, peer, group, topic, **options):
        self._consumer = peer.push_consumer(
            group, topic, report="timed", sleep_ms=int(LISTENER_S * 1000), **options
        )
        self.client_id = self._consumer.client_id
        self.owned = self._consumer.owned
        self.stop = self._consumer.stop
        self.kill = self._consumer.kill

    def times(self):
        return [(at_ms, ended, one.keys) for at_ms, ended, one in self._consumer.times()]


class KeyedLoad:
    """Sends from a thread of its own, until its block ends; `sent` holds what brokers stored."""

    def __init__(self, nameserver, topic):
        self._topic = topic
        self._over = threading.Event()
        self._producer = Producer("keyed-load", nameserver=nameserver, timeout_s=20.0)
        self._thread = threading.Thread(target=self._run, name="keyed-load", daemon=True)
        self._failure = None
        #: Wall time in ms, `key:number`.
        self.sent = []

    def __enter__(self):
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, kind, *_):
        self._over.set()
        self._thread.join(60.0)
        self._producer.stop()
        if kind is None and self._failure is not None:
            raise self._failure

    def _run(self):
        try:
            for number in itertools.count():
                if self._over.wait(PAUSE_S):
                    return
                key = f"key-{number % KEYS}"
                text = f"{key}:{number // KEYS}"
                self._producer.send(Message(self._topic, b"x", keys=text, sharding_key=key))
                self.sent.append((int(time.time() * 1000), text))
        except Exception as error:  # noqa: BLE001 - told to the test, which fails with it
            self._failure = error


class LoadedGroup:
    """Members that share a topic of eight queues under a load, and all that they ever did."""

    def __init__(self, load, topic, group, allocation="AVG"):
        self._load, self._topic, self._group, self._allocation = load, topic, group, allocation
        self._live, self._ever = [], []
        self._queues = {MessageQueue(topic, f"broker-{b}", n) for b in "ab" for n in range(4)}
        #: What changed, and seconds until every queue was where the strategy wants it.
        self.settled_s = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self._live:
            member.kill()

    def join(self, what, make, **patience):
        """A member comes; returns it."""
        return self._change(what, make, **patience)

    def leave(self, what, member, **patience):
        self._live.remove(member)
        self._change(what, member.stop, **patience)

    def die(self, what, member, **patience):
        self._live.remove(member)
        self._change(what, member.kill, **patience)

    def finish(self):
        """Wait until everything that was sent has been consumed."""
        eventually(self._all_consumed, PATIENT_S, pause_s=0.5)

    def history(self):
        lines = [self._line(at_ms, Kind.SENT, "load", text) for at_ms, text in self._load.sent]
        for member in self._ever:
            lines += [
                self._line(at_ms, Kind.ENDED if ended else Kind.STARTED, member.client_id, text)
                for at_ms, ended, text in member.times()
            ]
        # An end and the beginning that waited for it may fall into the same millisecond.
        lines.sort(key=lambda line: (line.at_s, line.kind is Kind.STARTED))
        history = History()
        history.lines += lines
        return history

    def _change(self, what, act, *, within_s=PATIENT_S):
        """Do it; every queue goes where the strategy wants it, and load arrives there meanwhile."""
        begun, since = len(self._load.sent), time.monotonic()
        made = act()
        if made is not None:
            self._live.append(made)
            self._ever.append(made)
        wanted = self._wanted()
        deadline = since + within_s
        while (views := self._views()) != wanted:
            assert time.monotonic() < deadline, (what, views, wanted)
            time.sleep(0.05)
        self.settled_s.append((what, round(time.monotonic() - since, 2)))
        busy = [member for member in self._live if wanted[member.client_id]]
        eventually(lambda: all(self._has_got(one, begun) for one in busy), PATIENT_S, pause_s=0.1)
        return made

    def _wanted(self):
        ids = [member.client_id for member in self._live]
        shares = balance.allocate(
            self._allocation, queues=self._queues, members=ids, group=self._group
        )
        return {member: set(share) for member, share in shares.items()}

    def _views(self):
        return {
            member.client_id: {queue for queue in member.owned() if queue.topic == self._topic}
            for member in self._live
        }

    def _has_got(self, member, begun):
        """Whether a member was given one of the messages that were sent since."""
        young = {text for _, text in self._load.sent[begun:]}
        return any(text in young for _, _, text in member.times())

    def _all_consumed(self):
        ended = {text for one in self._ever for _, ended, text in one.times() if ended}
        return ended >= {text for _, text in self._load.sent}

    def _line(self, at_ms, kind, who, text):
        key, number = text.split(":")
        return Happened(at_ms / 1000, kind, who, f"{self._topic}/{key}", int(number), text=text)


def duplicates(history):
    """How many deliveries were not the first of their message."""
    texts = [line.text for line in history.of(Kind.STARTED)]
    return len(texts) - len(set(texts))
