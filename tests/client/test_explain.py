"""`Admin.explain` on running groups: what it says has to be what the members do."""

import asyncio
import re
import threading

import pytest

from gimbalmq import (
    Admin,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    aio,
    balance,
)
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.errors import AllocationError, ConfigurationError, StateError
from gimbalmq.model.queue import MessageQueue, parse_queue
from gimbalmq.model.weights import QueueWeights
from gimbalmq.runtime.member_answers import MemberAnswers
from gimbalmq.wire.codes import RequestCode
from gimbalmq.wire.sharing import QUEUE_FIELD
from gimbalmq.wire.weights import encode_weights
from sharing import agreed, shared_out
from waiting import eventually

QUEUES = 8


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster):
    with Admin(cluster.nameserver) as admin:
        yield admin


class Group:
    """Members by name on a topic of their own, and what each of them holds."""

    def __init__(self, cluster, topic, **options):
        cluster.create_topic(topic, queues=QUEUES // 2)
        self.name, self.topic = f"group-{topic}", topic
        self._nameserver = cluster.nameserver
        self._options = options
        self._admin = Admin(cluster.nameserver)
        self.members = {}

    def start(self, *names, **options):
        for name in names:
            consumer = PushConsumer(
                self.name,
                nameserver=self._nameserver,
                client_id=name,
                **{**self._options, **options},
            )
            consumer.subscribe(self.topic, listener=lambda message: None)
            self.members[name] = consumer.start()
        return self

    def stop(self, name):
        one = self.members.pop(name)
        one.stop()
        return one.client_id

    def owners(self):
        """The client id of each queue's owner."""
        return {
            queue: one.client_id
            for one in self.members.values()
            for queue in one.assignment()
            if queue.topic == self.topic
        }

    def settled(self):
        held = [
            queue
            for one in self.members.values()
            for queue in one.assignment()
            if queue.topic == self.topic
        ]
        shared = all(
            any(queue.topic == self.topic for queue in one.assignment())
            for one in self.members.values()
        )
        whole = shared and len(held) == len(set(held)) == QUEUES
        return whole and agreed(self._admin, self.name, held)

    def __enter__(self):
        self._admin.__enter__()
        return self

    def __exit__(self, *_):
        self._admin.__exit__(None, None, None)
        for member in self.members.values():
            member.stop()


def moved(without, topic):
    return {
        parse_queue(one.queue): one.to
        for one in without.moves
        if parse_queue(one.queue).topic == topic
    }


def says_what_is(admin, group):
    """The explanation of each queue; owner and holder are checked to be the real ones."""
    found = {}
    eventually(group.settled)
    for queue, owner in group.owners().items():
        found[queue] = one = admin.explain(group.name, queue)
        assert (one.owner, one.holders, one.differences, one.unknown) == (owner, (owner,), (), ())
        assert one.queue == queue.path
    return found


def noticed(admin, group, queue):
    """The explanation when all members know that one is absent."""
    return eventually(
        lambda: (one := admin.explain(group, queue)).absent and not one.differences and one
    )


# ---- members that are waited for ---------------------------------------------------------------


def test_queues_of_an_absent_member_are_said_to_be_kept_for_it(cluster, admin):
    options = {"lease": True, "rejoin_grace_s": 60.0, "allocation": "CAPPED_HASH"}
    with Group(cluster, "absent", **options) as group:
        group.start("ann", "bob", "cid")
        eventually(group.settled)
        before = group.owners()
        bob = group.stop("bob")
        its_own = next(queue for queue, owner in before.items() if owner == bob)
        found = noticed(admin, group.name, its_own)
        assert (found.owner, found.holders) == (bob, ())
        assert found.absent.keys() == {bob}
        assert 0 < found.absent[bob] <= 60
        told = re.search(r"are kept for it for another ([0-9.]+) s \(rejoin", found.sentence)
        assert 0 < float(told[1]) <= 60
        assert f"'{bob}' is absent" in found.sentence
        assert (found.differences, found.unknown) == ((), ())
        for queue, owner in before.items():
            if owner != bob:
                other = admin.explain(group.name, queue)
                assert (other.owner, other.holders) == (owner, (owner,))
                assert "counted as if it were there" in other.sentence
                assert other.data["members"] == 3


def test_what_if_an_absent_member_stays_away_is_what_then_happens(cluster, admin):
    grace_s = 6.0  # all that is looked at while one is waited for has to fit into it
    options = {"lease": True, "rejoin_grace_s": grace_s, "allocation": "CAPPED_HASH"}
    with Group(cluster, "away", **options) as group:
        group.start("ann", "bob", "cid")
        eventually(group.settled)
        before = group.owners()
        bob = group.stop("bob")
        queue = next(queue for queue, owner in before.items() if owner == bob)
        noticed(admin, group.name, queue)
        without = admin.explain(group.name, queue, without=["bob"]).without
        assert without.members == (bob,)
        assert 0 < without.waits_s <= grace_s, "only the rest of its time"
        predicted = before | moved(without, group.topic)
        assert predicted[queue] == without.owner
        assert bob not in predicted.values()
        eventually(group.settled)
        assert group.owners() == predicted
        ann = group.members["ann"].client_id
        without = admin.explain(group.name, queue, without=["ann"]).without
        assert (without.members, without.waits_s) == ((ann,), grace_s)


def test_where_nobody_is_waited_for_the_reason_is_told(cluster, admin):
    with Group(cluster, "mixed-grace", lease=True) as group:
        group.start("ann", rejoin_grace_s=60.0).start("bob")
        eventually(group.settled)
        found = says_what_is(admin, group)
        ann = group.members["ann"].client_id
        told = next(one.sentence for one in found.values() if one.told_by == ann)
        assert "has no rejoin_grace_s: nobody waits for members that are gone" in told


# ---- published weights -------------------------------------------------------------------------


def test_the_version_of_published_weights_and_their_topic_are_named(cluster, admin):
    strategy = balance.strategy("WEIGHTED", weights="published", weights_topic="loads")
    options = {"allocation": strategy, "lease": True, "weights_interval_s": 0.1}
    with Group(cluster, "weighed", **options) as group:
        group.start("ann", "bob")
        eventually(group.settled)
        for found in says_what_is(admin, group).values():
            assert (found.weights.topic, found.weights.version) == ("loads", None)
            assert "'loads' has no weights for topic 'weighed'" in found.sentence
        cluster.create_topic("loads", queues=1, brokers=["broker-a"])
        heavy = MessageQueue("weighed", "broker-a", 1)
        document = QueueWeights(7, "weighed", 0, {heavy.path: 50.0})
        with Producer("load-profile", nameserver=cluster.nameserver) as producer:
            producer.send(Message("loads", encode_weights(document)))
        eventually(
            lambda: group.settled() and sorted(map(list(group.owners().values()).count,
                                                   set(group.owners().values()))) == [1, 7]
        )  # fmt: skip
        for queue, found in says_what_is(admin, group).items():
            assert (found.weights.topic, found.weights.version) == ("loads", 7)
            assert found.weights.weight == (50.0 if queue == heavy else 1.0)
            assert "those of version 7, published in topic 'loads'" in found.sentence
        owner = group.owners()[heavy]
        without = admin.explain(group.name, heavy, without=[owner]).without
        assert moved(without, group.topic) == {heavy: without.owner}
        assert "weight 50 counts as" in without.sentence, "the same weights"


# ---- zones -------------------------------------------------------------------------------------


def side(queue):
    return "west" if queue.broker == "broker-a" else "east"


@pytest.mark.parametrize("inner", ["CAPPED_HASH", "WEIGHTED"])
def test_zones_that_only_members_know_are_explained_by_a_member(cluster, admin, inner):
    options = {"weights": {f"zoned-{inner}/broker-a/0": 3}} if inner == "WEIGHTED" else {}
    strategy = balance.strategy(
        "ZONED",
        inner=inner,
        zone_of_queue=side,
        zone_of_member={"ann": "west", "bob": "west", "cid": "east"},
        zones_version="1",
        **options,
    )
    with Group(cluster, f"zoned-{inner}", allocation=strategy) as group:
        group.start("ann", "bob", "cid")
        eventually(group.settled)
        for queue, found in says_what_is(admin, group).items():
            assert found.rule == strategy.name
            assert found.data["zone"] == side(queue)
            assert f"is in zone '{side(queue)}'" in found.sentence
        before = group.owners()
        queue = next(queue for queue in before if side(queue) == "east")
        without = admin.explain(group.name, queue, without=["cid"]).without
        assert "which has no member" in without.sentence
        group.stop("cid")
        eventually(group.settled)
        assert group.owners() == before | moved(without, group.topic)


# ---- groups that do not agree ------------------------------------------------------------------


def test_a_group_that_fell_back_says_so_and_what_would_be_without_the_cause(cluster, admin):
    with Group(cluster, "fallen") as group:
        group.start("ann", "bob", allocation="CAPPED_HASH").start("old", allocation="AVG")
        eventually(group.settled)
        found = says_what_is(admin, group)
        assert {one.rule for one in found.values()} == {"AVG"}
        old = group.members["old"].client_id
        ours = [one for one in found.values() if one.told_by != old]
        for one in ours:
            assert one.fallback == (
                f"member '{old}' runs AVG: this group uses AVG instead of CAPPED_HASH until every "
                "member runs CAPPED_HASH"
            )
            assert f"The group does not use CAPPED_HASH: {one.fallback}." in one.sentence
        before, queue = group.owners(), parse_queue(ours[0].queue)
        without = admin.explain(group.name, queue, without=["old"]).without
        assert (without.strategy, without.reason) == ("CAPPED_HASH", "")
        group.stop("old")
        predicted = before | moved(without, group.topic)
        eventually(lambda: group.owners() == predicted)


def test_members_with_strategies_that_do_not_fit_are_named(cluster, admin):
    with Group(cluster, "unlike") as group:
        group.start("ann", allocation="AVG").start("bob", allocation="AVG_BY_CIRCLE")
        queue = MessageQueue("unlike", "broker-a", 0)
        eventually(lambda: len(admin.members(group.name)) == 2)
        found = eventually(
            lambda: (
                (one := admin.explain(group.name, queue)).told_by is not None
                and len(one.differences) >= 1
                and "not noticed" not in one.sentence
                and one
            )
        )
        assert "so their shares do not fit together" in found.sentence


def test_members_whose_users_pull_or_choose_are_told_apart(cluster, admin):
    cluster.create_topic("pulled", queues=1)
    queue = MessageQueue("pulled", "broker-a", 0)
    puller = PullConsumer("group-pulled", nameserver=cluster.nameserver, client_id="pull")
    puller.subscribe("pulled")
    with puller:
        found = eventually(lambda: (one := admin.explain("group-pulled", queue)).owner and one)
        assert (found.owner, found.holders) == (puller.client_id, ())
        assert found.unknown == (
            f"The user of '{puller.client_id}' pulls, so whether it is read is not known.",
        )
        assert found.differences == ()
    chooser = LitePullConsumer("group-chosen", nameserver=cluster.nameserver, client_id="lite")
    chooser.assign([queue])
    with chooser:
        eventually(lambda: queue in chooser.assignment() and admin.members("group-chosen"))
        found = eventually(lambda: (one := admin.explain("group-chosen", queue)).holders and one)
        assert (found.owner, found.rule, found.holders) == (None, None, (chooser.client_id,))
        assert "users chose them (assign)" in found.sentence


# ---- names, errors, asyncio --------------------------------------------------------------------


def test_in_a_namespace_names_are_those_of_the_user_and_the_owner_is_right(cluster):
    with Admin(cluster.nameserver, namespace="shop") as admin:
        admin.create_topic("till", queues=4)
        members = []
        try:
            for name in ("ann", "bob", "cid"):
                one = PushConsumer(
                    "tills",
                    nameserver=cluster.nameserver,
                    namespace="shop",
                    client_id=name,
                    allocation="CAPPED_HASH",
                )
                one.subscribe("till", listener=lambda message: None)
                members.append(one.start())
            eventually(lambda: shared_out(admin, "tills", "till", members, QUEUES))
            held = [sum(queue.topic == "till" for queue in one.assignment()) for one in members]
            assert sorted(held) == [2, 3, 3]
            for one in members:
                for queue in one.assignment():
                    if queue.topic != "till":
                        continue
                    found = admin.explain("tills", queue, without=[one.client_id])
                    assert (found.owner, found.queue) == (one.client_id, queue.path)
                    assert found.sentence.startswith(f"{queue.path}: under CAPPED_HASH")
                    assert queue.path in {move.queue for move in found.without.moves}
                    assert "shop%" not in found.sentence + found.without.sentence
        finally:
            for one in members:
                one.stop()


def test_what_cannot_be_explained_is_refused(cluster, admin):
    with Group(cluster, "refused") as group:
        group.start("ann")
        eventually(group.settled)
        queue = next(iter(group.owners()))
        with pytest.raises(AllocationError, match="not one of the 8 queues of topic 'refused'"):
            admin.explain(group.name, MessageQueue("refused", "broker-a", 99))
        with pytest.raises(ConfigurationError, match="'zoe' is no member"):
            admin.explain(group.name, queue, without=["zoe"])
        with pytest.raises(StateError, match="nobody is left to own"):
            admin.explain(group.name, queue, without=["ann"])
        with pytest.raises(AllocationError, match="NONE"):
            admin.explain(group.name, queue, strategy="NONE")
    with pytest.raises(StateError, match="has no member now"):
        admin.explain(group.name, queue)


@pytest.mark.parametrize("face", ["sync", "aio"])
@pytest.mark.parametrize("question", ["explain", "diagnose", "assignments"])
def test_members_are_asked_at_the_same_time(cluster, monkeypatch, face, question):
    """No member answers before both were asked; a round that asks in turn would never end well."""
    plain, rounds = MemberAnswers.answer, Rounds(2)

    def answer(self, request, reply):
        if request.code != RequestCode.GET_CONSUMER_RUNNING_INFO or QUEUE_FIELD in request.fields:
            return plain(self, request, reply)
        rounds.add(lambda: self._instance.driver.post(lambda: plain(self, request, reply)))
        return True

    with Group(cluster, f"asked-{face}-{question}") as group:
        group.start("ann", "bob")
        eventually(group.settled)
        queue, owner = next(iter(group.owners().items()))
        arguments = {"explain": (queue,), "diagnose": (), "assignments": ()}[question]
        options = {"interval_s": 0.1} if question == "diagnose" else {}
        monkeypatch.setattr(MemberAnswers, "answer", answer)
        if face == "sync":
            with Admin(cluster.nameserver) as admin:
                found = getattr(admin, question)(group.name, *arguments, **options)
        else:

            async def ask():
                async with aio.Admin(cluster.nameserver) as admin:
                    return await getattr(admin, question)(group.name, *arguments, **options)

            found = asyncio.run(ask())
    assert rounds.full == (2 if question == "diagnose" else 1)
    match question:
        case "explain":
            assert (found.holders, found.unknown) == ((owner,), ())
        case "diagnose":
            assert [one.code for one in found.findings] == []
        case "assignments":
            assert queue in found[owner]
            assert len(found) == 2


class Rounds:
    """Lets go what was added when there is enough of it."""

    def __init__(self, size):
        self._size, self._lock, self._held = size, threading.Lock(), []
        self.full = 0

    def add(self, let_go):
        with self._lock:
            self._held.append(let_go)
            if len(self._held) < self._size:
                return
            held, self._held = self._held, []
            self.full += 1
        for one in held:
            one()


def test_asyncio_gives_the_same_answer(cluster, admin):
    with Group(cluster, "asynchronous") as group:
        group.start("ann", "bob")
        eventually(group.settled)
        queue = next(iter(says_what_is(admin, group)))

        async def ask():
            async with aio.Admin(cluster.nameserver) as other:
                return await other.explain(group.name, queue, without=["bob"])

        assert asyncio.run(ask()) == admin.explain(group.name, queue, without=["bob"])
