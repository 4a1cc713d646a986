"""What a member says about how it shares out is what its passes do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.consumer.harness import QUEUES, Harness, only
from gimbalmq.core.allocation import Snapshot, assign, strategy_named
from gimbalmq.core.consumer.effects import Lock
from gimbalmq.core.consumer.events import Trigger, WeightsRead, Woken
from gimbalmq.core.consumer.ground import Ground, members_digest
from gimbalmq.core.identity import member_id
from gimbalmq.model.queue import MessageQueue

NAMES = ("ann", "bob", "cid", "dan")


def ids_for(strategy, names=NAMES, grace_s=None):
    return tuple(member_id(name, strategy, rejoin_grace_s=grace_s) for name in names)


def ground(strategy="CAPPED_HASH", listed=None, queues=QUEUES, **more):
    wanted = strategy_named(strategy)
    listed = ids_for(wanted.name) if listed is None else listed
    by_topic = {}
    for queue in queues:
        by_topic[queue.topic] = by_topic.get(queue.topic, frozenset()) | {queue}
    return Ground("billing", listed[0] if listed else "", wanted, by_topic, listed, **more)


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CAPPED_HASH", "CROSS_TOPIC"])
@given(
    count=st.integers(1, 12),
    topics=st.integers(1, 3),
    size=st.integers(2, 4),
    leaver=st.integers(0, 3),
)
def test_owner_and_moves_are_what_the_members_compute(strategy, count, topics, size, leaver):
    queues = [MessageQueue(f"t{at % topics}", "broker-a", at) for at in range(count)]
    queues.append(MessageQueue("%RETRY%billing", "broker-a", 0))
    listed = ids_for(strategy)[:size]
    leaving = listed[leaver % size]
    here = ground(strategy, listed, queues)

    def computed(members):
        """As every member does it: pot by pot."""
        owners = {}
        pots = [[queues[-1]], queues[:-1]] if strategy == "CROSS_TOPIC" else [queues]
        for pot in pots:
            shares = assign(strategy_named(strategy), Snapshot.of("billing", pot, members))
            owners |= {queue: member for member, share in shares.items() for queue in share}
        return owners

    before, after = computed(listed), computed([one for one in listed if one != leaving])
    for queue in queues:
        answer = here.answer(queue, (leaving,))
        assert answer.reason.owner == before[queue]
        assert answer.without.owner == after[queue]
    told = {one.queue: (one.origin, one.to) for one in answer.without.moves}
    assert told == {
        queue.path: (before[queue], after[queue])
        for queue in queues
        if before[queue] != after[queue]
    }


def test_absent_members_are_counted_and_keep_their_share():
    *here, gone = ids_for("AVG", grace_s=30.0)
    one = ground("AVG", tuple(here), waits={gone: 12.3456})
    assert one.sharing().waits == {gone: 12.346}
    owners = [one.answer(queue).reason.owner for queue in QUEUES]
    assert owners == [*here, gone]
    assert one.answer(QUEUES[0], (gone,)).without.waits_s == 12.3456
    assert one.answer(QUEUES[0], (here[1],)).without.waits_s == 30.0
    assert one.answer(QUEUES[0], (here[1], gone)).without.waits_s == 30.0


def test_nobody_is_waited_for_beside_one_that_does_not_wait():
    mine = ids_for("AVG", NAMES[:2], 30.0)
    one = ground("AVG", (*mine, "cid@gmq1-AVG"))
    assert "has no rejoin_grace_s" in one.sharing().no_waiting
    assert one.answer(QUEUES[0], (mine[1],)).without.waits_s is None
    assert ground("AVG", ids_for("AVG")).sharing().no_waiting == "", "it was not asked for"


def test_a_fallback_and_its_end_are_told():
    ours, foreign = ids_for("CAPPED_HASH", NAMES[:2]), "10.0.0.7@4711#8"
    one = ground("CAPPED_HASH", tuple(sorted((*ours, foreign))))
    says = one.sharing()
    assert (says.strategy, says.wanted) == ("AVG", "CAPPED_HASH")
    assert foreign in says.reason
    answer = one.answer(QUEUES[0], (foreign,))
    assert answer.reason.rule == "AVG"
    assert (answer.without.strategy, answer.without.reason) == ("CAPPED_HASH", "")
    stays = one.answer(QUEUES[0], (ours[0],)).without
    assert (stays.strategy, foreign in stays.reason) == ("AVG", True)


def test_what_it_cannot_say_it_says():
    assert "has not seen a list" in ground(listed=()).answer(QUEUES[0]).trouble
    assert "nobody is left" in ground().answer(QUEUES[0], ids_for("CAPPED_HASH")).trouble
    stranger = MessageQueue("orders", "broker-z", 0)
    assert "broker-z" in ground().answer(stranger).trouble
    unknown = Ground("billing", "a", strategy_named("CROSS_TOPIC"), {"orders": None}, ("a",))
    assert "are not known to 'a' yet" in unknown.answer(QUEUES[0]).trouble
    waiting = strategy_named("WEIGHTED", {"weights": "published"})
    ids = ids_for(waiting.name)
    early = Ground("billing", ids[0], waiting, {"orders": frozenset(QUEUES)}, ids)
    assert "only running consumers read them" in early.answer(QUEUES[0]).trouble


def test_a_strategy_of_the_users_that_fails_is_an_answer():
    class Failing:
        name = "FAILING"

        def allocate(self, snapshot):
            raise ZeroDivisionError("by nought")

    one = Ground("g", "a", Failing(), {"orders": frozenset(QUEUES)}, ids_for("FAILING"))
    assert "FAILING failed with ZeroDivisionError: by nought" in one.answer(QUEUES[0]).trouble


def test_lists_are_compared_whatever_their_order():
    assert ground().sharing().listed == members_digest(reversed(ids_for("CAPPED_HASH")))
    assert ground(listed=()).sharing().listed == ""


# ---- a running member ----------------------------------------------------------------------------


def test_a_member_tells_of_its_last_pass_weights_included():
    ids = [member_id(stem, "WEIGHTED.published") for stem in ("a", "b")]
    harness = Harness(client_id=ids[0], lease=True)
    harness.machine.passes._strategy = strategy_named("WEIGHTED", {"weights": "published"})
    assert harness.machine.ground(harness.now).sharing().strategy == ""
    harness.start()
    harness.handle(WeightsRead({QUEUES[0].path: 100.0}, {"orders": 3}))
    effects = harness.members(*ids)
    mine = {queue for lock in only(effects, Lock) for queue, _epoch in lock.asked}
    here = harness.machine.ground(harness.now)
    says = here.sharing()
    assert (says.strategy, says.versions) == ("WEIGHTED.published", {"orders": 3})
    assert says.weights_topic == "GIMBALMQ_WEIGHTS"
    assert mine == {queue for queue in QUEUES if here.answer(queue).reason.owner == ids[0]}
    assert here.answer(QUEUES[0]).reason.data["weight"] == 100.0


def test_a_member_tells_whom_it_waits_for_and_the_time_that_is_left():
    ids = ids_for("AVG", NAMES[:3], 30.0)
    harness = Harness(client_id=ids[0], lease=True, rejoin_grace_s=30.0)
    harness.machine.passes._absence._asked = True
    harness.start()
    harness.members(*ids)
    harness.now += 1.0
    harness.handle(Woken(Trigger.NOTICE))
    harness.members(*ids[:2])
    harness.now += 12.0
    here = harness.machine.ground(harness.now)
    assert here.waits == {ids[2]: 18.0}
    assert here.counted == ids
    harness.now += 18.0
    assert harness.machine.ground(harness.now).waits == {}
