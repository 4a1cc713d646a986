"""Consumers whose user reads, in virtual time: what expires, and when offsets are stored."""

import pytest

from client.virtual_time import VirtualMember
from gimbalmq import (
    LitePullConsumer,
    MessageQueue,
    PullConsumer,
    PushConsumer,
)
from gimbalmq.wire.codes import RequestCode


@pytest.mark.rule("B2.6j")
@pytest.mark.parametrize(
    ("kind", "expires"), [(PushConsumer, True), (LitePullConsumer, False), (PullConsumer, False)]
)
def test_no_queue_of_a_pull_kind_expires(kind, expires):
    member = VirtualMember(kind).start()  # its brokers never answer a pull
    owned = member.owned()
    assert owned
    looked_up = len(member.of(RequestCode.QUERY_CONSUMER_OFFSET))
    member.advance(119.0)
    assert len(member.of(RequestCode.QUERY_CONSUMER_OFFSET)) == looked_up
    member.advance(3600.0)
    assert member.owned() == owned
    # One that expired was dropped, and taken again where the group's offset is.
    again = len(member.of(RequestCode.QUERY_CONSUMER_OFFSET)) > looked_up
    assert again == expires


@pytest.mark.rule("B6.3b", "B6.5a")
@pytest.mark.parametrize("options", [{}, {"auto_commit_interval_s": 2.0}], ids=["default", "2 s"])
def test_offsets_of_a_poller_are_committed_every_five_seconds_or_as_often_as_it_says(options):
    member = VirtualMember(LitePullConsumer, **options)
    member.brokers.records[MessageQueue("orders", "broker-a", 0)] = [b"0", b"1", b"2"]
    member.start(settle_s=0.0)
    interval_s = options.get("auto_commit_interval_s", 5.0)

    def committed():
        found = member.notified(RequestCode.UPDATE_CONSUMER_OFFSET)
        return {int(one.fields["commitOffset"]) for one in found}

    member.advance(0.0)
    assert len(member.polls.poll(0.0)) == 3
    member.advance(interval_s)
    assert committed() == {0}, "they are with the user"
    member.polls.settle()  # as the next poll does
    member.advance(interval_s - 0.001)
    assert committed() == {0}
    member.advance(0.001)
    assert committed() == {0, 3}
