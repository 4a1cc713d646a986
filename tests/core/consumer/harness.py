"""Drives a ConsumerMachine by hand: events in, effects out, invariants checked at each step."""

from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.effects import FindOffset, ListMembers, Lock, Pull
from gimbalmq.core.consumer.events import (
    LockAnswered,
    MembersListed,
    OffsetFound,
    PullAnswered,
    RouteLearned,
    Started,
    Trigger,
    Woken,
)
from gimbalmq.core.consumer.machine import ConsumerMachine
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.model.message import PullStatus
from gimbalmq.model.queue import MessageQueue

ME = "a@gmq1-AVG"
OTHER = "b@gmq1-AVG"
QUEUES = tuple(MessageQueue("orders", "broker-a", number) for number in range(4))


class Harness:
    def __init__(self, strategy="AVG", topics=("orders",), **settings):
        options = {"group": "billing", "client_id": ME, **settings}
        self.machine = ConsumerMachine(
            ConsumerSettings(**options), strategy_named(strategy), topics
        )
        self.now = 100.0

    def handle(self, event):
        effects = self.machine.handle(event, self.now)
        self.machine.validate()
        return effects

    def handle_all(self, events):
        return [effect for event in events for effect in self.handle(event)]

    # ---- short cuts --------------------------------------------------------------------------

    def start(self, queues=QUEUES):
        """Start with known routes; returns the effects of the start."""
        effects = self.handle(RouteLearned("orders", frozenset(queues)))
        return effects + self.handle(Started())

    def members(self, *members):
        return self.handle(MembersListed(tuple(members)))

    def located(self, effects, offset=0):
        """Answer every FindOffset; returns the effects, pulls among them."""
        return self.handle_all(
            OffsetFound(effect.queue, effect.epoch, offset) for effect in only(effects, FindOffset)
        )

    def owning(self, *members, offset=0):
        """Start, list the members, locate; returns the pulls in flight by queue."""
        self.start()
        pulls = only(self.located(self.members(*members), offset), Pull)
        return {pull.queue: pull for pull in pulls}

    def deliver(self, pull, *bodies, next_offset=None):
        offsets = [pull.offset + index for index in range(len(bodies))]
        return self.handle(
            PullAnswered(
                pull.queue,
                pull.epoch,
                PullStatus.FOUND,
                offsets[-1] + 1 if next_offset is None else next_offset,
                bodies,
                offsets,
                sum(map(len, bodies)),
            )
        )

    def pass_again(self, *members, trigger=Trigger.NOTICE):
        """Another pass, past the gap; the list of members is what the broker answers."""
        self.now += 1.0
        effects = self.handle(Woken(trigger))
        assert only(effects, ListMembers)
        return self.members(*members)


class LockingHarness(Harness):
    """A member of an ordered group, unless the settings say otherwise."""

    def __init__(self, **settings):
        super().__init__(**{"ordered": True, **settings})

    def lock(self, effects, *, granted=True):
        """Answer every Lock: all granted, none, or only some queues."""
        answers = []
        for effect in only(effects, Lock):
            queues = frozenset(queue for queue, _epoch in effect.asked)
            if granted is not True:
                queues &= frozenset(granted or ())
            answers.append(LockAnswered(effect.asked, queues, self.now))
        return self.handle_all(answers)

    def owning_locked(self, *members):
        self.start()
        effects = self.located(self.lock(self.members(*members)))
        return {pull.queue: pull for pull in only(effects, Pull)}


def only(effects, kind):
    return [effect for effect in effects if isinstance(effect, kind)]


def one(effects, kind):
    (found,) = only(effects, kind)
    return found
