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
