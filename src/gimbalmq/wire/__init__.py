"""RocketMQ's remoting protocol as pure functions between bytes and values: no socket, no clock."""
