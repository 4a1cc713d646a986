"""How tests start Java clients: so that none of them waits for a timer that no test is about."""

from gimbalmq.testing.processes import QUICK_START_FLAGS

#: Java beats and looks for routes every 30 s. A heartbeat that meets another one in the same client
#: is dropped, and a broker then refuses the client's pulls until the next; a retry topic that has
#: just come about is not read before the next look. Both would hold a test up for half a minute.
_CLIENT = {"heartbeat_ms": 1_000, "poll_nameserver_ms": 1_000}

#: What no notice told of, as a retry topic that has just come about, waits for Java's next round of
#: balancing, which is 20 s away at most.
_JAVA = ("-Drocketmq.client.rebalance.waitInterval=2000",)

#: Options of a `JavaPeer`.
LIVELY = {"client_options": _CLIENT, "jvm_flags": (*QUICK_START_FLAGS, *_JAVA)}


def committed(consumer, admin, group, topic):
    """How many messages a Java member has committed of a topic; has it commit once more.

    To be asked until it is enough, and before the member stops: it commits one-way, counts a
    message only when its listener has returned, and of a group's first offsets a broker may lose
    one when two come at once (`flows.offset.hand_over`).
    """
    consumer.persist()
    return sum(admin.committed(group, topic).values())
