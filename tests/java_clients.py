"""How tests start Java clients: so that none of them waits for a timer that no test is about."""

#: Java beats and looks for routes every 30 s. A heartbeat that meets another one in the same client
#: is dropped, and a broker then refuses the client's pulls until the next; a retry topic that has
#: just come about is not read before the next look. Both would hold a test up for half a minute.
LIVELY = {"heartbeat_ms": 1_000, "poll_nameserver_ms": 1_000}
