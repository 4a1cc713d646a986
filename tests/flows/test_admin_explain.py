"""Why a queue is where it is: whom the flow asks, and what it makes of members that do not say."""

import pytest

from flows.script import ok, refusal
from flows.test_admin import SETS, servers
from gimbalmq import balance
from gimbalmq.core.consumer.ground import members_digest
from gimbalmq.errors import StateError, TransportError
from gimbalmq.flows.admin_explain import explain_queue
from gimbalmq.flows.effects import Call, Together
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.route import QueueData, TopicRoute
from gimbalmq.model.sharing import MemberAnswer, Reason, Sharing, WithoutMembers
from gimbalmq.wire.bodies import (
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    PopQueueInfo,
    QueueInfo,
    RunningInfo,
    encode_cluster,
    encode_consumer_connection,
    encode_route,
    encode_running_info,
)
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.codes import version_ordinal
from gimbalmq.wire.sharing import (
    ANSWER_PROPERTY,
    QUEUE_FIELD,
    SHARING_PROPERTY,
    WITHOUT_FIELD,
    decode_without,
    encode_answer,
    encode_sharing,
)
from gimbalmq.wire.subscription import parse_tags

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(6)]
JAVA = ("10.0.0.1@1", "10.0.0.2@2")
OURS = ("ann@gmq1-ZONED.12345678", "bob@gmq1-ZONED.12345678")


class Member:
    def __init__(self, held=(), sharing=None, answer=None, popped=(), silent=False):
        self.held, self.sharing, self.answer = held, sharing, answer
        self.popped, self.silent = popped, silent

    def info(self, fields):
        said = {}
        if self.sharing is not None:
            said[SHARING_PROPERTY] = encode_sharing(self.sharing)
        if QUEUE_FIELD in fields and self.answer is not None:
            said[ANSWER_PROPERTY] = encode_answer(self.answer)
        return RunningInfo(
            said,
            queues={queue: QueueInfo() for queue in self.held},
            pop_queues={queue: PopQueueInfo() for queue in self.popped},
        )


class World:
    """One broker, a topic, and members that answer as they are told to."""

    def __init__(self, members, model="CLUSTERING"):
        self.members = members
        self.model = model
        self.asked = []
        #: How many flows were run side by side each time, at most how many at once.
        self.together = []
        self.members_asked = 0

    def explain(self, queue=QUEUES[0], **options):
        return self._run(explain_queue(servers(), "billing", queue, 3.0, **options))

    def _run(self, flow):
        try:
            effect = next(flow)
            while True:
                answer = self._perform(effect)
                effect = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect):
        if isinstance(effect, Together):
            self.together.append((len(effect.flows), effect.at_once))
            return [self._run(flow) for flow in effect.flows]
        assert isinstance(effect, Call)
        if effect.command.code == R.GET_CONSUMER_RUNNING_INFO:
            self.members_asked += 1
        return self._answer(effect.command)

    def _answer(self, command):
        match command.code:
            case R.GET_BROKER_CLUSTER_INFO:
                one = {"broker-a": SETS["broker-a"]}
                return ok(encode_cluster(ClusterInfo(one, {"main": ("broker-a",)})))
            case R.GET_CONSUMER_CONNECTION_LIST:
                connections = tuple(
                    ClientConnection(name, f"1.1.1.1:{at}", "JAVA", version_ordinal("5.3.3"))
                    for at, name in enumerate(self.members)
                )
                topics = {name: parse_tags(name, "*", 1) for name in ("orders", "%RETRY%billing")}
                said = ConsumerConnection(connections, topics, "CONSUME_PASSIVELY", self.model)
                return ok(encode_consumer_connection(said))
            case R.GET_ROUTEINFO_BY_TOPIC:
                if command.fields["topic"] != "orders":
                    return refusal(17, "no route")
                queues = (QueueData("broker-a", 6, 6, 6),)
                return ok(encode_route(TopicRoute("orders", (SETS["broker-a"],), queues)))
            case R.GET_CONSUMER_RUNNING_INFO:
                name = command.fields["clientId"]
                if QUEUE_FIELD in command.fields:
                    self.asked.append((name, command.fields))
                if self.members[name].silent:
                    return TransportError("no answer")
                return ok(encode_running_info(self.members[name].info(command.fields)))
        raise AssertionError(command)


def java_group(strategy, **options):
    shares = balance.allocate(strategy, queues=QUEUES, members=JAVA)
    return World({name: Member(share, **options) for name, share in shares.items()})


def sharing(**changes):
    return Sharing(OURS[0].partition("-")[2], OURS[0].partition("-")[2],
                   listed=members_digest(OURS), **changes)  # fmt: skip


# ---- members that say why ------------------------------------------------------------------------


def test_the_member_that_holds_the_queue_is_asked():
    why = Reason("x", "ZONED.12345678", {"zone": "west"}, "Because of its zone.")
    for holder in OURS:
        world = World(
            {
                name: Member(
                    QUEUES[:1] if name == holder else (),
                    sharing(),
                    MemberAnswer(Reason(holder, why.rule, why.data, why.sentence)),
                )
                for name in OURS
            }
        )
        found = world.explain()
        assert [name for name, _ in world.asked] == [holder]
        assert world.asked[0][1][QUEUE_FIELD] == QUEUES[0].path
        assert WITHOUT_FIELD not in world.asked[0][1]
        assert (found.owner, found.told_by, found.holders) == (holder, holder, (holder,))
        assert (found.sentence, found.data) == ("Because of its zone.", {"zone": "west"})


def test_who_might_leave_is_asked_about_with_full_ids_absent_ones_too():
    gone = "cid@gmq1-ZONED.12345678"
    later = WithoutMembers((gone,), OURS[0], "Then.", (), "ZONED.12345678", waits_s=4.0)
    answer = MemberAnswer(Reason(gone, "ZONED.12345678", {}, "Zones."), later)
    world = World({name: Member((), sharing(waits={gone: 4.0}), answer) for name in OURS})
    found = world.explain(without=["cid"])
    assert decode_without(world.asked[0][1][WITHOUT_FIELD]) == (gone,)
    assert found.without == later
    assert found.absent == {gone: 4.0}


def test_the_next_member_is_asked_when_one_cannot_say():
    said = MemberAnswer(Reason(OURS[1], "ZONED.12345678", {}, "Zones."))
    world = World(
        {
            OURS[0]: Member((), sharing(), MemberAnswer(trouble="not yet")),
            OURS[1]: Member(QUEUES, sharing(), said),
        }
    )
    world.members[OURS[1]].held = ()
    found = world.explain()
    assert [name for name, _ in world.asked] == list(OURS)
    assert found.told_by == OURS[1]
    world.members[OURS[1]].answer = MemberAnswer(trouble="nor this one")
    found = world.explain()
    assert (found.owner, found.rule) == (None, None)
    assert "why cannot be said: not yet" in found.sentence


# ---- members that do not say ---------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_foreign_members_are_judged_by_what_they_hold(strategy):
    for queue in QUEUES:
        found = java_group(strategy).explain(queue)
        expected = balance.explain(strategy, queue=queue, queues=QUEUES, members=JAVA)
        assert (found.owner, found.rule, found.told_by) == (expected.owner, strategy, None)
        assert found.holders == (expected.owner,)
        assert found.sentence == (
            f"{expected.sentence} The members do not say by what they share out; they hold what "
            f"{strategy} gives."
        )
        assert (found.differences, found.unknown) == ((), ())


def test_when_they_hold_what_no_known_strategy_gives_that_is_said():
    world = World({JAVA[0]: Member(QUEUES[1:]), JAVA[1]: Member(QUEUES[:1])})
    found = world.explain()
    assert (found.owner, found.holders) == (JAVA[0], (JAVA[1],))
    assert "they do not hold what AVG gives" in found.sentence
    assert found.differences[0].startswith(f"But '{JAVA[1]}' holds it now")


def test_when_one_is_silent_nothing_can_be_compared_and_that_is_said():
    world = java_group("AVG_BY_CIRCLE")
    world.members[JAVA[0]].silent = True
    found = world.explain(QUEUES[1])
    assert "AVG is taken for it, which cannot be checked" in found.sentence
    assert found.unknown == (
        f"'{JAVA[0]}' did not answer, so whether it holds the queue, too, is not known.",
    )


def test_zones_of_silent_members_are_not_guessed():
    found = World({name: Member(silent=True) for name in OURS}).explain()
    assert (found.owner, found.rule, found.holders) == (None, None, ())
    assert "the members use ZONED.12345678, none of them answered" in found.sentence
    assert "did not answer, so whether it holds the queue is not known" in found.sentence


def test_a_silent_member_of_ours_beside_a_foreign_one_can_only_have_fallen_back():
    ids = (OURS[0], JAVA[0])
    shares = balance.allocate("AVG", queues=QUEUES, members=ids)
    world = World({name: Member(share) for name, share in shares.items()})
    found = world.explain()
    assert (found.rule, found.holders) == ("AVG", (found.owner,))


def test_without_a_foreign_member_the_rest_may_use_its_own_strategy():
    ids = ("ann@gmq1-CAPPED_HASH", "bob@gmq1-CAPPED_HASH", JAVA[0])
    shares = balance.allocate("AVG", queues=QUEUES, members=ids)
    world = World({name: Member(share) for name, share in shares.items()})
    without = world.explain(without=[JAVA[0]]).without
    assert without.strategy == "CAPPED_HASH"
    later = balance.allocate("CAPPED_HASH", queues=QUEUES, members=ids[:2])
    assert without.owner == next(name for name, share in later.items() if QUEUES[0] in share)


def test_another_strategy_is_computed_over_those_that_members_count():
    gone = "cid@gmq1-AVG+rejoin30"
    ids = ("ann@gmq1-AVG+rejoin30", "bob@gmq1-AVG+rejoin30")
    says = Sharing("AVG", "AVG", listed=members_digest(ids), waits={gone: 9.0})
    world = World({name: Member((), says) for name in ids})
    found = world.explain(strategy="AVG_BY_CIRCLE", without=["bob"])
    expected = balance.explain(
        "AVG_BY_CIRCLE", queue=QUEUES[0], queues=QUEUES, members=[*ids, gone]
    )
    assert (found.owner, found.rule) == (expected.owner, "AVG_BY_CIRCLE")
    assert "That is what AVG_BY_CIRCLE would give; the members use AVG." in found.sentence
    assert found.without.owner in {ids[0], gone}
    assert world.asked == []


# ---- what is not shared out ----------------------------------------------------------------------


def test_popped_queues_have_no_owner():
    every = MessageQueue("orders", "broker-a", -1)
    world = World({name: Member(popped=[every]) for name in JAVA})
    found = world.explain()
    assert (found.owner, found.rule, found.data) == (None, "POP", {"members": list(JAVA)})
    assert "one at a time (POP)" in found.sentence
    with pytest.raises(StateError, match="no queue moves"):
        world.explain(without=[JAVA[0]])


def test_a_group_that_broadcasts_has_nothing_to_explain():
    with pytest.raises(StateError, match="broadcasts"):
        World({JAVA[0]: Member()}, model="BROADCASTING").explain()


def test_all_members_are_asked_side_by_side_and_each_once():
    names = [f"10.0.0.{number}@{number}" for number in range(1, 13)]
    world = World({name: Member(silent=number % 3 == 0) for number, name in enumerate(names)})
    found = world.explain()
    assert world.together == [(12, 8)]
    assert world.members_asked == 12
    # A broker has 16 threads for such questions, and a silent member keeps one for 10 s.
    assert [one for one in names if f"'{one}'" in " ".join(found.unknown)] == names[::3]
