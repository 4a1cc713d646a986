"""Every fault is planted in facts of a healthy group; each must be found, and nothing else."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq import balance
from gimbalmq.core.diagnosis import CODES, Limits, diagnose
from gimbalmq.core.group_facts import (
    BrokerFacts,
    GroupFacts,
    GroupSample,
    HoldFacts,
    MemberFacts,
    QueueFacts,
)
from gimbalmq.model.queue import MessageQueue
from gimbalmq.model.sharing import LockTimes, Sharing

QUEUES = [MessageQueue("orders", broker, number) for broker in "ab" for number in range(4)]
RETRY = MessageQueue("%RETRY%billing", "a", 0)
IDS = ("10.0.0.1@1", "10.0.0.2@1", "10.0.0.3@1")
BROKERS = (BrokerFacts("a", answer_s=0.01), BrokerFacts("b", answer_s=0.02))
change = msgspec.structs.replace


def sample(ids=IDS, *, queues=QUEUES, shares=None, position=5, committed=5, maximum=10):
    shares = shares or balance.allocate("AVG", queues=queues, members=ids)
    members = tuple(
        MemberFacts(
            one,
            "JAVA",
            "5.5.0",
            1,
            frozenset("ab"),
            {queue: HoldFacts(position) for queue in shares.get(one, ())},
            {"orders": "*", "%RETRY%billing": "*"},
        )
        for one in ids
    )
    offsets = {queue: QueueFacts(0, maximum, committed) for queue in queues}
    return GroupSample(members, offsets | {RETRY: QueueFacts(0, 0, None)}, BROKERS)


def facts(first=None, second=None, **more):
    first = first or sample()
    return GroupFacts("billing", first, second or sample(position=8, committed=7), 6.0, **more)


def both(edit, **more):
    """The facts of a group that looks ill in both looks."""
    healthy = facts()
    return change(healthy, first=edit(healthy.first), second=edit(healthy.second), **more)


def codes(found, limits=None):
    diagnosis = diagnose(found, limits)
    assert diagnosis.healthy == (not diagnosis.findings)
    assert all(one.message and one.action for one in diagnosis.findings)
    assert {one.code for one in diagnosis.findings} <= set(CODES)
    return [one.code for one in diagnosis.findings]


def member(number, edit):
    """Changes one member of a sample."""

    def apply(one):
        members = list(one.members)
        members[number] = edit(members[number])
        return change(one, members=tuple(members))

    return apply


def test_nothing_is_found_in_a_healthy_group():
    assert codes(facts()) == []


@given(members=st.integers(1, 8), queues=st.integers(1, 24))
def test_nothing_is_found_in_any_settled_group_with_queues_for_all(members, queues):
    ids = [f"10.0.0.{number}@1" for number in range(members)]
    listed = [MessageQueue("orders", "ab"[at % 2], at // 2) for at in range(max(queues, members))]
    first, second = (
        sample(ids, queues=listed, position=at, committed=at) for at in (5, 8)
    )  # fmt: skip
    assert codes(facts(first, second)) == []


def test_a_group_with_nothing_left_to_read_is_not_stuck():
    quiet = sample(position=10, committed=10)
    assert codes(facts(quiet, quiet)) == []


def test_a_rebalance_in_progress_is_no_fault():
    """Between two looks queues move; each look alone shows gaps and doubles."""
    gap = member(0, lambda one: change(one, held={}))(sample())
    double = member(1, lambda one: change(one, held=sample().members[0].held | one.held))(sample())
    moved = sample(position=8, committed=7)
    assert codes(facts(gap, moved)) == []
    assert codes(facts(double, moved)) == []


def test_a_group_without_members_is_told_with_what_waits():
    nobody = change(sample(), members=())
    (found,) = diagnose(facts(nobody, nobody)).findings
    assert (found.code, found.severity) == ("NO_MEMBERS", "error")
    assert "40 messages wait" in found.message


def test_a_queue_that_nobody_holds_is_found():
    ill = both(member(0, lambda one: change(one, held=dict(list(one.held.items())[1:]))))
    (found,) = diagnose(ill).findings
    assert (found.code, found.queues, found.members) == ("QUEUE_UNOWNED", ("orders/a/0",), ())


def test_queues_that_wait_for_an_absent_member_are_told_to():
    ids = [f"{name}@gmq1-AVG+rejoin30" for name in ("ann", "bob", "cid")]
    *here, gone = ids
    shares = balance.allocate("AVG", queues=QUEUES, members=ids)

    def look(sharing, position=5):
        one = sample(here, shares=shares, position=position)
        members = tuple(change(it, language="PYTHON", sharing=sharing) for it in one.members)
        return change(one, members=members)

    says = Sharing("AVG", "AVG", waits={gone: 12.0})
    (found,) = diagnose(facts(look(says), look(says, 8))).findings
    assert found.code == "QUEUE_UNOWNED"
    assert found.action.startswith(f"'{gone}' is absent, and its queues wait for it, 12.0 s more")
    (found,) = diagnose(facts(look(None), look(None, 8))).findings
    assert "if a member restarts, they wait 30 s for it" in found.action


def test_a_retry_queue_that_nobody_holds_counts_once_a_message_waits_in_it():
    waiting = {RETRY: QueueFacts(0, 3, None)}
    ill = both(lambda one: change(one, offsets=one.offsets | waiting))
    assert codes(ill) == ["QUEUE_UNOWNED"]


def test_a_queue_with_two_owners_is_found():
    hold = {QUEUES[0]: HoldFacts(6)}
    ill = both(member(2, lambda one: change(one, held=one.held | hold)))
    (found,) = diagnose(ill).findings
    assert (found.code, found.queues) == ("QUEUE_DOUBLY_OWNED", ("orders/a/0",))
    assert found.members == (IDS[0], IDS[2])


def test_in_a_broadcasting_group_everyone_owns_everything():
    everything = dict.fromkeys(QUEUES, HoldFacts(5))
    sound = both(
        lambda one: change(one, members=tuple(change(own, held=everything) for own in one.members)),
        broadcasting=True,
    )
    assert codes(sound) == []


def telling(locks=None, *, ordered=False):
    """Makes a member one of ours that says how it locks."""
    return lambda one: change(one, ordered=ordered, sharing=Sharing("AVG", "AVG", locks=locks))


@pytest.mark.parametrize(
    ("careful", "careless"),
    [
        (telling(LockTimes(3.0, 4.0)), lambda one: one),
        (telling(LockTimes(3.0, 4.0)), telling()),
        (lambda one: change(one, ordered=True), lambda one: one),
    ],
    ids=["lease beside Java", "lease beside none", "Java ordered beside concurrent"],
)
def test_members_that_consume_without_locks_beside_others_that_lock_are_found(careful, careless):
    def look(one):
        for number, edit in enumerate((careful, careful, careless)):
            one = member(number, edit)(one)
        return one

    (found,) = diagnose(both(look)).findings
    assert (found.code, found.severity) == ("MIXED_LOCKING", "error")
    assert found.members == (IDS[2],)


@pytest.mark.parametrize("kind", ["lease", "ordered", "neither", "silent"])
def test_members_that_lock_alike_are_no_fault(kind):
    edit = {
        "lease": telling(LockTimes(3.0, 4.0)),
        "ordered": telling(LockTimes(3.0, 4.0), ordered=True),
        "neither": telling(),
        "silent": lambda one: change(one, held=None),
    }[kind]
    looks = both(lambda one: change(one, members=tuple(map(edit, one.members))))
    assert not {"MIXED_LOCKING", "UNSAFE_LOCK_TIMES"} & set(codes(looks))


def test_a_member_that_trusts_its_locks_longer_than_another_waits_is_found():
    times = [LockTimes(3.0, 4.0), LockTimes(10.0, 12.0), LockTimes(3.0, 4.0)]

    def look(one):
        for number, own in enumerate(times):
            one = member(number, telling(own))(one)
        return one

    (found,) = diagnose(both(look)).findings
    assert found.code == "UNSAFE_LOCK_TIMES"
    assert found.members == (IDS[0], IDS[1])
    assert "for 10 s" in found.message


def test_a_duplicate_id_is_found():
    ill = both(member(1, lambda one: change(one, connections=2)))
    (found,) = diagnose(ill).findings
    assert (found.code, found.members) == ("DUPLICATE_ID", (IDS[1],))


def test_a_member_that_a_broker_does_not_list_is_found():
    ill = both(member(1, lambda one: change(one, listed_by=frozenset("a"))))
    assert codes(ill) == ["MEMBER_PARTLY_LISTED"]


def test_a_silent_member_is_found_and_its_queues_are_not_called_unowned():
    ill = both(member(1, lambda one: change(one, held=None, subscriptions=None)))
    assert codes(ill) == ["MEMBER_SILENT"]


def renamed(first, *names):
    """The same group with other client ids, shares computed anew."""
    look = sample(names, position=first, committed=first)
    languages = {True: "PYTHON", False: "JAVA"}
    return change(
        look,
        members=tuple(
            change(one, language=languages["@gmq" in one.client_id]) for one in look.members
        ),
    )


@pytest.mark.parametrize(
    ("ids", "severity"),
    [
        (("a@gmq1-AVG", "b@gmq1-AVG_BY_CIRCLE"), "error"),
        (("a@gmq1-CAPPED_HASH", "b@gmq1-CROSS_TOPIC"), "warning"),
        (("a@gmq1-CAPPED_HASH", "b@gmq2-CAPPED_HASH"), "warning"),
        (("a@gmq1-CAPPED_HASH", "10.0.0.1@1"), "warning"),
    ],
)
def test_mixed_strategies_are_read_from_the_ids(ids, severity):
    found = diagnose(facts(renamed(5, *ids), renamed(8, *ids))).findings
    assert [(one.code, one.severity) for one in found] == [("MIXED_STRATEGIES", severity)]


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (("a@gmq1-AVG+rejoin30", "b@gmq1-AVG"), "none, 30"),
        (("a@gmq1-AVG+rejoin30", "b@gmq1-AVG+rejoin45"), "30, 45"),
        (("a@gmq1-AVG+rejoin30", "10.0.0.1@1"), "none, 30"),
    ],
)
def test_different_grace_times_are_found(ids, told):
    (found,) = diagnose(facts(renamed(5, *ids), renamed(8, *ids))).findings
    assert (found.code, found.severity) == ("MIXED_STRATEGIES", "warning")
    assert f"different rejoin_grace_s ({told})" in found.message


def test_equal_strategies_of_ours_beside_java_are_no_fault():
    ids = ("a@gmq1-AVG", "b@gmq1-AVG", "10.0.0.1@1")
    assert codes(facts(renamed(5, *ids), renamed(8, *ids))) == []


def test_a_java_member_with_another_strategy_is_found_by_what_it_holds():
    avg = balance.allocate("AVG", queues=QUEUES, members=IDS)
    circle = balance.allocate("AVG_BY_CIRCLE", queues=QUEUES, members=IDS)
    mixed = {**avg, IDS[1]: circle[IDS[1]]}
    first, second = (sample(shares=mixed, position=at, committed=at) for at in (5, 8))
    found = codes(facts(first, second))
    assert found[0] == "MIXED_STRATEGIES"
    assert set(found) == {"MIXED_STRATEGIES", "QUEUE_UNOWNED", "QUEUE_DOUBLY_OWNED"}


def test_mixed_versions_are_found_per_language():
    ill = both(member(1, lambda one: change(one, version="4.9.5")))
    assert codes(ill) == ["MIXED_VERSIONS"]
    sound = both(member(1, lambda one: change(one, version="5.3.3", language="PYTHON")))
    assert codes(sound) == []


@pytest.mark.rule("B10.5")
@pytest.mark.parametrize("other", [{"orders": "paid"}, {"payments": "*"}, {}])
def test_pitfall_5_unequal_subscriptions_are_found(other):
    ill = both(member(2, lambda one: change(one, subscriptions=other)))
    (found,) = diagnose(ill).findings
    assert (found.code, found.members) == ("UNEQUAL_SUBSCRIPTIONS", (IDS[2],))


def test_more_members_than_queues_are_found_and_retry_queues_do_not_count():
    ids = [f"10.0.0.{number}@1" for number in range(9)]
    first, second = (sample(ids, position=at, committed=at) for at in (5, 8))
    (found,) = diagnose(facts(first, second)).findings
    assert (found.code, len(found.members)) == ("IDLE_MEMBERS", 1)
    exact = [sample(ids[:8], position=at, committed=at) for at in (5, 8)]
    assert codes(facts(*exact)) == []


def test_an_offset_that_stands_still_is_found():
    still = sample(position=5, committed=5)
    (found,) = diagnose(facts(still, still)).findings
    assert (found.code, len(found.queues)) == ("OFFSET_STUCK", 8)
    assert "40 messages" in found.message


def test_a_commit_that_lags_behind_its_owner_is_not_stuck():
    assert codes(facts(sample(), sample(position=9, committed=5))) == []


def test_a_first_message_that_hangs_is_found_although_nothing_is_committed():
    def holding(cached):
        def edit(one):
            held = {queue: HoldFacts(None, cached=cached) for queue in one.held}
            return change(one, held=held)

        look = sample(IDS[:1], committed=None)
        return member(0, edit)(look)

    assert codes(facts(holding(3), holding(3))) == ["OFFSET_STUCK"]
    assert codes(facts(holding(0), holding(0))) == [], "it started at the end of the queue"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (QueueFacts(0, 10, 9), QueueFacts(0, 10, 3), "went back"),
        (QueueFacts(0, 10, 99), QueueFacts(0, 10, 99), "beyond the end"),
        (QueueFacts(0, 90, 5), QueueFacts(40, 90, 6), "lost messages"),
    ],
)
def test_a_jumping_offset_is_found(before, after, words):
    healthy = facts()
    queue = QUEUES[0]
    first = change(healthy.first, offsets=healthy.first.offsets | {queue: before})
    second = change(healthy.second, offsets=healthy.second.offsets | {queue: after})
    found = [one for one in diagnose(facts(first, second)).findings if one.code != "OFFSET_STUCK"]
    assert [(one.code, one.queues) for one in found] == [("OFFSET_JUMPED", (queue.path,))]
    assert words in found[0].message


def test_skew_is_found_and_a_difference_of_one_is_not():
    uneven = {IDS[0]: QUEUES[:6], IDS[1]: QUEUES[6:7], IDS[2]: QUEUES[7:]}
    first, second = (sample(shares=uneven, position=at, committed=at) for at in (5, 8))
    (found,) = diagnose(facts(first, second)).findings
    assert (found.code, found.members) == ("SKEW", (IDS[0],))


def test_a_hot_queue_is_found():
    hot = {QUEUES[3]: QueueFacts(0, 5000, 100)}
    ill = both(lambda one: change(one, offsets=one.offsets | hot))
    (found,) = [one for one in diagnose(ill).findings if one.code != "OFFSET_STUCK"]
    assert (found.code, found.queues, found.members) == ("LAG_SKEW", ("orders/a/3",), (IDS[1],))
    assert "LAG_SKEW" not in codes(ill, Limits(hot_queue_lag=10_000))


def test_a_long_hand_over_is_found():
    def release(one):
        return change(one, held=one.held | {QUEUES[7]: HoldFacts(5, releasing=True)})

    (found,) = diagnose(both(member(0, release))).findings
    assert (found.code, found.queues, found.members) == (
        "HANDOVER_LONG", ("orders/b/3",), (IDS[0],),
    )  # fmt: skip
    assert codes(facts(member(0, release)(sample()))) == [], "one look alone is a hand-over"


def test_a_lock_of_the_dead_is_found_and_explains_the_unowned_queue():
    def look(one):
        in_order = tuple(change(each, ordered=True) for each in one.members)
        without = member(0, lambda each: change(each, held=dict(list(each.held.items())[1:])))
        return without(change(one, members=in_order))

    ill = both(look, locked_by_unknown=(QUEUES[0],))
    (found,) = diagnose(ill).findings
    assert (found.code, found.queues) == ("LOCK_HELD_BY_DEAD", ("orders/a/0",))


@pytest.mark.parametrize(
    "lagging",
    [
        BrokerFacts("a", failure="no answer within 5 s"),
        BrokerFacts("a", answer_s=2.5),
        BrokerFacts("a", has_master=False),
        BrokerFacts("a", behind_bytes=1 << 30),
        BrokerFacts("a", waiting_s=4.0),
    ],
)
def test_a_lagging_broker_is_found(lagging):
    ill = both(lambda one: change(one, brokers=(lagging, BROKERS[1])))
    (found,) = diagnose(ill).findings
    assert found.code == "BROKER_LAGGING"
    assert "'a'" in found.message


def test_errors_come_before_warnings():
    ill = both(member(1, lambda one: change(one, version="4.9.5", connections=2)))
    assert codes(ill) == ["DUPLICATE_ID", "MIXED_VERSIONS"]


def test_every_code_is_planted_by_a_test():
    text = Path(__file__).read_text("utf-8")
    assert [code for code in CODES if f'"{code}"' not in text] == []
