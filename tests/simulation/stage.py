"""A stage for directed scenarios: two members of an ordered group, two brokers, a backlog."""

from __future__ import annotations

from gimbalmq.testing.sim import Mode, Options
from gimbalmq.testing.sim.cast import Cast
from gimbalmq.testing.sim.executor import ListenerHabits


class Stage(Cast):
    def __init__(self, seed=1, mode=Mode.ORDERED):
        super().__init__(seed, Options(mode=mode, faults=(), rough_listeners=False))
        self.queues_each = 1
        self.brokers = [self.broker("broker-a"), self.broker("broker-b")]
        self.habits = ListenerHabits(0.1, 0.1)

    def begin(self, until=6.0):
        self.nameserver.start()
        for broker in self.brokers:
            broker.start()
            broker.create_topic("orders", 1)
        self.world.run_until(1.0)
        for key in range(2):
            self.producer.send(key, [f"k{key}-{n}" for n in range(400)], lambda: 0.001)
        self.world.run_until(2.0)
        self.start_member()
        self.start_member()
        self.world.run_until(until)
        return self

    def owner(self, broker):
        """The member that owns the queue of a broker, and the other one."""
        first, second = self.members
        owns = any(
            queue.topic == "orders" and queue.broker == broker for queue in first.assignment()
        )
        return (first, second) if owns else (second, first)

    def sever(self, member, broker):
        """Nothing passes between the two any more; the broker knows at once."""
        name = member.process.name
        for connection in self.network.alive_connections():
            if connection.names == {name, broker}:
                connection.tear((None, 0.0))
        self.network.cut(name, broker)
