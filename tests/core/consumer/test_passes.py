"""Passes that one topic cannot take part in."""

import pytest

from core.consumer.harness import ME, OTHER, QUEUES, Harness, only
from gimbalmq.core.allocation import strategy_named
from gimbalmq.core.consumer.effects import FindOffset, SetTimer, Warn
from gimbalmq.core.consumer.events import RouteLearned, TimerName
from gimbalmq.model.queue import MessageQueue


@pytest.mark.rule("B2.4h")
def test_a_retry_topic_that_cannot_be_shared_out_leaves_the_pass_settled():
    class Picky:
        name = "AVG"

        def allocate(self, snapshot):
            if snapshot.queues[0].topic.startswith("%RETRY%"):
                raise ValueError("not these")
            return strategy_named("AVG").allocate(snapshot)

    harness = Harness(topics=("orders", "%RETRY%billing"))
    harness.machine.passes._strategy = Picky()
    retry = MessageQueue("%RETRY%billing", "broker-a", 0)
    harness.handle(RouteLearned("%RETRY%billing", frozenset({retry})))
    harness.start()
    effects = harness.members(ME)
    assert {find.queue for find in only(effects, FindOffset)} == set(QUEUES)
    assert not only(effects, Warn), "quietly"
    timers = {timer.name: timer.delay_s for timer in only(effects, SetTimer)}
    assert timers == {TimerName.REBALANCE: 20.0}, "nothing is tried again soon"


def test_whatever_a_strategy_raises_keeps_the_queues_and_is_tried_again():
    harness = Harness()
    pulls = harness.owning(ME)

    class Broken:
        name = "AVG"

        def allocate(self, snapshot):
            raise ZeroDivisionError("no members")

    harness.machine.passes._strategy = Broken()
    effects = harness.pass_again(ME, OTHER)
    (warning,) = only(effects, Warn)
    assert "strategy AVG failed with ZeroDivisionError: no members" in warning.text
    assert harness.machine.assignment() == set(pulls)
    assert {timer.name for timer in only(effects, SetTimer)} == {
        TimerName.REBALANCE,
        TimerName.NEXT_PASS,
    }
