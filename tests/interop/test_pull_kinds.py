"""Consumers that are asked, in groups on a real broker: their shares, and what is read of them."""

import threading

import pytest

from gimbalmq import LitePullConsumer, Message, Producer, PullConsumer

pytestmark = pytest.mark.matrix

PER_QUEUE = 3


@pytest.fixture
def producer(rocketmq):
    with Producer("asked", nameserver=rocketmq.nameserver, timeout_s=20.0) as producer:
        yield producer


@pytest.fixture
def queues(producer, topic):
    return sorted(producer.queues(topic))


@pytest.fixture
def send(producer, queues):
    """Sends to each queue, or to one; gives the bodies, which say where they are."""

    def send(word, *chosen):
        sent = [
            (queue, f"{word} {number} of {queue.path}".encode())
            for queue in chosen or queues
            for number in range(PER_QUEUE)
        ]
        for queue, body in sent:
            producer.send(Message(queue.topic, body), queue=queue)
        return sorted(body for _, body in sent)

    return send


class Poller:
    """A lite pull consumer that is polled all the time by a thread of its own."""

    def __init__(self, consumer):
        self.consumer = consumer
        self.got = []
        #: What its listener was told: queues that came and went.
        self.told = []
        consumer.on_rebalance(lambda one: self.told.append((one.acquired, one.revoked)))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="poller", daemon=True)

    def __enter__(self):
        self.consumer.start()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.leave()

    def leave(self):
        self._over.set()
        self._thread.join(30.0)
        self.consumer.stop()

    def _poll(self):
        while not self._over.is_set():
            self.got += self.consumer.poll(0.2)

    def bodies(self):
        return sorted(message.body for message in self.got)

    def share(self, topic):
        """Its queues of a topic, which are those that came and did not go again."""
        held = {queue for queue in self.consumer.assignment() if queue.topic == topic}
        told = set()
        for acquired, revoked in list(self.told):
            told = (told | set(acquired)) - set(revoked)
        return held if held == {queue for queue in told if queue.topic == topic} else None


def test_members_that_poll_share_a_topic_with_each_other_and_with_java(
    rocketmq, java_peer, topic, queues, group_name, send, eventually
):
    def poller():
        consumer = LitePullConsumer(group_name, nameserver=rocketmq.nameserver, start_from="first")
        consumer.subscribe(topic)
        return Poller(consumer)

    def shared(*shares):
        """Whether every queue is with one of the members, and their shares are even."""
        if any(share is None for share in shares):
            return False
        held = sorted(queue for share in shares for queue in share)
        sizes = [len(share) for share in shares]
        return held == queues and max(sizes) - min(sizes) <= 1

    with poller() as first:
        eventually(lambda: shared(first.share(topic)))
        with poller() as second:
            eventually(lambda: shared(first.share(topic), second.share(topic)))
            early = send("early")
            eventually(lambda: sorted(first.bodies() + second.bodies()) == early)
            assert {message.queue for message in second.got} == second.share(topic)
            # A next owner begins with what is stored when it comes, not when the other has gone.
            first.consumer.commit()
            second.consumer.commit()
            with java_peer.lite_pull(group_name, topic) as java:
                eventually(lambda: shared(first.share(topic), second.share(topic), java.owned()))
                java_share = java.owned()
            eventually(lambda: shared(first.share(topic), second.share(topic)))
            assert java_share
        # Who leaves has stored where it was.
        eventually(lambda: shared(first.share(topic)))
        late = send("late")
        eventually(lambda: set(late) <= set(first.bodies()))
        assert sorted(first.bodies() + second.bodies()) == sorted(early + late)


def test_a_share_is_read_again_after_a_seek_and_not_while_it_is_paused(
    rocketmq, topic, queues, group_name, send, eventually
):
    consumer = LitePullConsumer(group_name, nameserver=rocketmq.nameserver, start_from="first")
    consumer.subscribe(topic)
    one, *others = queues
    with Poller(consumer) as poller:
        eventually(lambda: poller.share(topic) == set(queues))
        sent = send("sent")
        eventually(lambda: poller.bodies() == sent)
        consumer.seek(one, 1)
        again = [body for body in sent if body.endswith(one.path.encode())][1:]
        eventually(lambda: poller.bodies() == sorted(sent + again))
        consumer.pause([one])
        consumer.seek(one, PER_QUEUE)  # where it is: ends the pull that was on its way
        held_back, flowing = send("held back", one), send("flowing", *others)
        eventually(lambda: set(flowing) <= set(poller.bodies()))
        assert not set(held_back) & set(poller.bodies())
        consumer.resume([one])
        eventually(lambda: poller.bodies() == sorted(sent + again + held_back + flowing))


def test_queues_that_were_assigned_are_read_whoever_else_reads_them(
    rocketmq, topic, queues, group_name, send, eventually
):
    sent = send("sent")

    def of(*chosen):
        return [body for body in sent if body.decode().split()[-1] in {one.path for one in chosen}]

    def assigned(*chosen):
        consumer = LitePullConsumer(group_name, nameserver=rocketmq.nameserver, start_from="first")
        consumer.assign(chosen)
        return Poller(consumer)

    with assigned(*queues[:2]) as first, assigned(*queues[1:3]) as second:
        eventually(lambda: first.bodies() == of(*queues[:2]))
        eventually(lambda: second.bodies() == of(*queues[1:3]))
        second.consumer.assign([queues[5]])
        eventually(lambda: second.bodies() == of(*queues[1:3], queues[5]))
        assert second.consumer.assignment() == {queues[5]}


def test_members_that_pull_share_a_topic_and_go_on_where_one_left(
    rocketmq, topic, queues, group_name, send, eventually
):
    told, got = {}, []

    def puller(name):
        consumer = PullConsumer(group_name, nameserver=rocketmq.nameserver, client_id=name)
        consumer.on_queues_changed(topic, lambda _topic, share: told.update({name: share}))
        return consumer

    def pull(consumer):
        """Read and commit what nobody has committed of its share."""
        for queue in consumer.assignment(topic):
            result = consumer.pull(queue, consumer.committed(queue) or 0)
            got.extend(message.body for message in result.messages)
            consumer.commit(queue, result.next_offset)

    def pulled(wanted, *consumers):
        # A broker shows a message a little later than it acknowledges it.
        for consumer in consumers:
            pull(consumer)
        return sorted(got) == wanted

    def shared(**shares):
        return told == shares and sorted(queue for one in told.values() for queue in one) == queues

    early = send("early")
    with puller("ann") as ann:
        eventually(lambda: shared(ann=ann.assignment(topic)))
        with puller("bob") as bob:
            eventually(lambda: shared(ann=ann.assignment(topic), bob=bob.assignment(topic)))
            assert len(told["ann"]) == len(told["bob"]) == 4
            eventually(lambda: pulled(early, ann, bob))
        del told["bob"]
        eventually(lambda: shared(ann=ann.assignment(topic)))
        late = send("late")
        eventually(lambda: pulled(sorted(early + late), ann))
