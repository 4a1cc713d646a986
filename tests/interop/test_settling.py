"""What makes a group settle: notices, not timers; and locks that are taken over.

The rebalance timer is set so long that it cannot have helped.
"""

import pytest

from interop.python_member import PythonMember

TIMER_S = 600.0
#: A broker forgets a lock after 60 s: whoever has the queues before did not wait for that.
BEFORE_LOCKS_EXPIRE_S = 40.0


@pytest.fixture
def member(rocketmq, topic, group_name):
    members = []

    def start(**options):
        members.append(
            PythonMember(
                rocketmq.nameserver, group_name, topic, rebalance_interval_s=TIMER_S, **options
            )
        )
        return members[-1]

    yield start
    for one in members:
        one.kill()


def shares(topic, members):
    return [
        frozenset(queue for queue in member.owned() if queue.topic == topic) for member in members
    ]


def settled(topic, members):
    """Every one of the topic's eight queues has exactly one owner, and the shares are even."""

    def check():
        owned = shares(topic, members)
        return (
            sum(map(len, owned)) == len(frozenset().union(*owned)) == 8
            and max(map(len, owned)) - min(map(len, owned)) <= 1
        )

    return check


@pytest.mark.matrix
@pytest.mark.rule("B9a")
def test_a_join_a_leave_and_a_kill_settle_without_the_timer(topic, member, eventually):
    first = member()
    eventually(settled(topic, [first]), 30.0)
    second, third = member(), member()
    eventually(settled(topic, [first, second, third]), 30.0)
    third.stop()
    eventually(settled(topic, [first, second]), 30.0)
    second.kill()
    eventually(settled(topic, [first]), 30.0)


@pytest.mark.matrix
@pytest.mark.rule("B10.12")
@pytest.mark.parametrize("mode", ["ordered", "lease"])
def test_pitfall_12_locks_of_a_killed_member_are_taken_over(topic, member, eventually, mode):
    first, second = member(**{mode: True}), member(**{mode: True})
    eventually(settled(topic, [first, second]), 30.0)
    second.kill()
    eventually(settled(topic, [first]), BEFORE_LOCKS_EXPIRE_S)


@pytest.mark.parametrize("mode", ["ordered", "lease"])
def test_pitfall_12_a_killed_member_is_followed_while_others_come_and_go(
    topic, member, eventually, mode
):
    """The one that replaces it, under another id, has not seen it go."""
    first, second = member(**{mode: True}), member(**{mode: True})
    eventually(settled(topic, [first, second]), 30.0)
    second.kill()
    member(**{mode: True}).stop()
    third = member(**{mode: True})
    eventually(settled(topic, [first, third]), BEFORE_LOCKS_EXPIRE_S)
