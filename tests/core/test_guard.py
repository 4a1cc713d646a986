"""When a watcher releases locks: never while somebody may be alive, soon when nobody can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.guard import (
    BrokerLook,
    GroupLook,
    GuardMachine,
    GuardSettings,
    ListedMember,
    grace_s,
)

ANN, BOB, CID = "10.0.0.1@1", "10.0.0.2@1", "10.0.0.3@1"


def look(*ids, release="5.5.0", brokers="ab", silent="", broadcasting=False):
    members = tuple(ListedMember(one, release) for one in ids)
    return GroupLook(
        tuple(BrokerLook(name, None if name in silent else members) for name in brokers),
        broadcasting,
    )


class Watch:
    """A machine and what it decided, by second."""

    def __init__(self, **settings):
        self.machine = GuardMachine(GuardSettings(**settings))
        self.told = []

    def see(self, at, shown):
        decisions = self.machine.look(shown, at)
        self.told += [(at, one.kind, one.members) for one in decisions]
        return [one.kind for one in decisions]

    def kinds(self):
        return [kind for _, kind, _ in self.told]


@pytest.fixture
def watch():
    watch = Watch()
    watch.see(0.0, look(ANN, BOB))
    return watch


def test_a_member_that_stays_away_is_released_after_its_grace_time_and_the_others_are_woken(watch):
    assert watch.see(1.0, look(BOB)) == ["missing"]
    assert watch.see(6.0, look(BOB)) == []
    assert watch.see(6.5, look(BOB)) == ["release", "wake"]
    assert watch.told[-2:] == [(6.5, "release", (ANN,)), (6.5, "wake", (BOB,))]
    assert watch.see(30.0, look(BOB)) == [], "once is enough"


def test_a_member_that_comes_back_in_time_is_left_alone(watch):
    watch.see(1.0, look(BOB))
    assert watch.see(2.7, look(ANN, BOB)) == ["returned"]
    assert watch.see(60.0, look(ANN, BOB)) == []


@pytest.mark.parametrize(
    ("release", "expected"),
    [("5.5.0", 5.0), ("5.2.0", 5.0), ("higher", 5.0), ("5.1.4", 35.0), ("4.9.5", 35.0), ("", 35.0)],
)
def test_old_clients_get_the_time_until_their_next_heartbeat(release, expected):
    assert grace_s(ANN, release, GuardSettings()) == expected
    watch = Watch()
    watch.see(0.0, look(ANN, BOB, release=release))
    watch.see(1.0, look(BOB, release=release))
    assert watch.see(1.0 + expected, look(BOB, release=release)) == []
    assert watch.see(1.1 + expected, look(BOB, release=release)) == ["release", "wake"]


def test_strict_waits_until_nobody_would_trust_a_lock():
    assert grace_s(ANN, "5.5.0", GuardSettings(strict=True)) == 35.0
    assert grace_s("ann@gmq1-AVG", "5.3.3", GuardSettings()) == 5.0


def test_who_is_listed_by_one_broker_only_is_alive(watch):
    one_sided = GroupLook(
        (
            BrokerLook("a", (ListedMember(BOB, "5.5.0"),)),
            BrokerLook("b", (ListedMember(ANN, "5.5.0"), ListedMember(BOB, "5.5.0"))),
        )
    )
    assert watch.see(1.0, one_sided) == []
    assert watch.see(100.0, one_sided) == []


def test_while_a_broker_cannot_be_asked_no_time_passes(watch):
    watch.see(1.0, look(BOB))
    assert watch.see(4.0, look(BOB, silent="b")) == ["refuse"]
    assert watch.see(20.0, look(BOB, silent="b")) == []
    assert watch.see(21.0, look(BOB)) == ["missing"], "the time counts anew"
    assert watch.see(25.0, look(BOB)) == []
    assert watch.see(27.0, look(BOB)) == ["release", "wake"]


def test_a_broker_that_left_the_name_server_may_still_serve_its_members(watch):
    assert watch.see(1.0, look(BOB, brokers="a")) == ["refuse"]
    assert watch.see(50.0, look(BOB, brokers="a")) == []
    watch.see(61.0, look(BOB, brokers="a"))
    assert watch.see(70.0, look(BOB, brokers="a")) == ["release", "wake"], "its locks are gone"


def test_a_cluster_that_cannot_be_asked_at_all_is_refused(watch):
    assert watch.see(1.0, GroupLook(())) == ["refuse"]


def test_a_broker_that_loses_everybody_is_doubted_more_than_its_members():
    watch = Watch()
    watch.see(0.0, look(ANN, BOB))
    back = look(BOB)
    watch.see(1.0, look())
    assert watch.see(2.0, back) == ["returned"]
    assert watch.see(10.0, back) == []
    assert watch.see(35.0, back) == []
    assert watch.see(36.5, back) == ["release", "wake"]


def test_without_survivors_nothing_is_done_and_it_is_told_once(watch):
    assert watch.see(1.0, look()) == ["missing", "missing", "refuse"]
    assert watch.see(100.0, look()) == []


def test_a_newcomer_takes_over_from_a_group_that_died_out(watch):
    watch.see(1.0, look())
    assert watch.see(40.0, look(CID)) == ["watching", "release", "wake"]


def test_a_group_of_our_own_members_is_left_to_itself():
    watch = Watch()
    ours = ("a@gmq1-AVG", "b@gmq1-AVG")
    assert watch.see(0.0, look(*ours)) == ["watching", "refuse"]
    assert watch.see(1.0, look(ours[0])) == []
    assert watch.see(100.0, look(ours[0])) == []


def test_a_broadcasting_group_is_refused():
    assert Watch().see(0.0, look(ANN, BOB, broadcasting=True)) == ["refuse"]


def test_a_member_that_returns_after_its_release_is_told_as_a_mistake(watch):
    watch.see(1.0, look(BOB))
    watch.see(7.0, look(BOB))
    assert watch.see(9.0, look(ANN, BOB)) == ["alive"]
    assert watch.see(10.0, look(BOB)) == ["missing"], "and it is watched as before"


def test_survivors_are_woken_again_until_every_queue_is_held(watch):
    watch.see(1.0, look(BOB))
    assert not watch.machine.waits_for_queues
    watch.see(7.0, look(BOB))
    assert watch.machine.waits_for_queues
    assert watch.machine.queues_held(complete=False, now=8.0) == []
    (again,) = watch.machine.queues_held(complete=False, now=12.5)
    assert again.kind == "wake"
    assert watch.machine.queues_held(complete=True, now=13.0) == []
    assert not watch.machine.waits_for_queues


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"grace_s": 1.0}, "too short"), ({"old_grace_s": 20.0}, "next heartbeat"), ({}, "")],
)
def test_grace_times_that_cannot_be_safe_are_refused(settings, words):
    assert words in GuardSettings(**settings).problems()
    assert bool(GuardSettings(**settings).problems()) == bool(words)


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 20.0), st.frozensets(st.sampled_from([ANN, BOB, CID])), st.booleans()
        ),
        min_size=1,
        max_size=40,
    )
)
def test_nobody_is_released_who_was_listed_within_the_grace_time(steps):
    watch = Watch()
    now, seen_at, blind_at = 0.0, {}, 0.0
    for pause_s, ids, silent in steps:
        now += pause_s
        shown = look(*sorted(ids), silent="b" if silent else "")
        for decision in watch.machine.look(shown, now):
            if decision.kind == "release":
                assert not silent
                for client_id in decision.members:
                    assert now - max(seen_at[client_id], blind_at) > 5.0
        blind_at = now if silent else blind_at
        seen_at |= dict.fromkeys(ids, now) if not silent else {}
