"""A stage for directed scenarios: two members of an ordered group, two brokers, a backlog."""

from __future__ import annotations

from gimbalmq.testing.sim import Mode, Options
from gimbalmq.testing.sim.cast import Cast
from gimbalmq.testing.sim.executor import ListenerHabits

#: What a directed scenario leaves to no seed.
PLAIN = {
    "rebalance_interval_s": 10.0,
    "keyed": False,
    "foreign": False,
    "busy_brokers": False,
    "spare_first": False,
}


class Stage(Cast):
    def __init__(self, seed=1, mode=Mode.ORDERED, listener_s=0.1, **options):
        given = {**PLAIN, **options}
        super().__init__(seed, Options(mode=mode, faults=(), rough_listeners=False, **given))
        self.queues_each = 1
        self.brokers = [self.broker("broker-a"), self.broker("broker-b")]
        self.habits = ListenerHabits(listener_s, listener_s)

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

    def run_for(self, seconds):
        """Let true time pass."""
        self.world.run_until(self.world.now + seconds)

    def owner(self, broker):
        """The member that owns the queue of a broker, and the other one."""
        first, second = self.members
        owns = any(
            queue.topic == "orders" and queue.broker == broker for queue in first.assignment()
        )
        return (first, second) if owns else (second, first)

    def tear(self, member, broker, learns=(0.0, 0.0)):
        """Their connection ends; the member, and the broker, learn of it after so long."""
        for connection in self.network.alive_connections():
            if connection.names == {member.process.name, broker}:
                connection.tear(learns)

    def sever(self, member, broker):
        """Nothing passes between the two any more; the broker knows at once."""
        self.tear(member, broker, (None, 0.0))
        self.network.cut(member.process.name, broker)
