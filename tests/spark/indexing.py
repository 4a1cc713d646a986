"""Waits for what a broker does after its answer."""

from __future__ import annotations

from gimbalmq import Admin
from waiting import eventually


def await_indexed(nameserver, sent):
    """Wait until messages can be read: a broker indexes a little later than it acknowledges."""
    ends = {}
    for one in sent:
        ends[one.queue] = max(one.queue_offset + 1, ends.get(one.queue, 0))
    topics = {queue.topic for queue in ends}
    with Admin(nameserver) as admin:

        def all_there():
            found = {}
            for topic in topics:
                found |= admin.offsets("nobody", topic)
            return all(found[queue].maximum >= end for queue, end in ends.items())

        eventually(all_there)
