"""What goes wrong in a scenario, by name: to members, to connections, to servers.

Decides whom a fault hits and how long it lasts. Whatever can be healed is healed when the calm
begins. Must not know when faults happen, nor how a run is judged.
"""

from __future__ import annotations

from collections.abc import Callable

from gimbalmq.testing.sim.cast import Cast
from gimbalmq.testing.sim.clients import SimMember
from gimbalmq.testing.sim.options import ENDING

__all__ = ["Faults"]


class Faults:
    """Does to a cast what the names of `FAULTS` and `RESTARTS` say."""

    def __init__(self, cast: Cast, calm_at: float) -> None:
        self._cast = cast
        self._world = cast.world
        self._chance = cast.chance
        self._calm_at = calm_at
        #: What happened so far, by name.
        self.happened: set[str] = set()

    def happen(self, name: str) -> None:
        """Let one of them happen now; nothing happens when there is nobody to happen to."""
        to_members = {
            "restart": self._restart,
            "crash and restart": self._crash_and_restart,
            "leave": self._cast.leave,
            "crash": self._cast.crash,
            "power loss": self._power_loss,
            "pause": self._pause,
            "partition": self._partition,
            "isolation": self._isolation,
        }
        others = {
            "join": self._join,
            "torn connection": self._tear,
            "broker crash": self._broker_crash,
            "broker pause": self._broker_pause,
            "name server crash": self._nameserver_crash,
        }
        if name in others:
            self.happened.add(name)
            others[name]()
            return
        candidates = self._cast.alive()
        if self._cast.options.spare_first and name in ENDING:
            candidates = [one for one in candidates if one is not self._cast.members[0]]
        if candidates:
            self.happened.add(name)
            to_members[name](self._chance.choice(candidates))

    def _join(self) -> None:
        self._cast.start_member()

    def _restart(self, member: SimMember) -> None:
        if not member.process.paused:
            member.process.on_end(lambda: self._come_back(member))
            self._cast.leave(member)

    def _crash_and_restart(self, member: SimMember) -> None:
        self._cast.crash(member)
        self._come_back(member)

    def _come_back(self, member: SimMember) -> None:
        # Not cut short by the calm, and known to happen: a group of the dead is waited for.
        self._world.after(
            self._chance.uniform(*self._cast.options.member_away_s),
            lambda: self._run_again(member),
        )

    def _run_again(self, member: SimMember) -> None:
        self._cast.start_again(member)

    def _power_loss(self, member: SimMember) -> None:
        self._cast.changed(member.process.name, "loses power")
        self._cast.network.silence(member.process)
        member.process.end()

    def _pause(self, member: SimMember) -> None:
        if member.process.paused:
            return
        self._cast.changed(member.process.name, "pauses")
        member.process.pause()

        def resume() -> None:
            self._cast.changed(member.process.name, "goes on")
            member.process.resume()

        self._until_calm(self._chance.uniform(0.5, 15.0), resume)

    def _partition(self, member: SimMember) -> None:
        self._cut(member.process.name, self._chance.choice(self._cast.brokers).name)

    def _isolation(self, member: SimMember) -> None:
        for server in (*self._cast.brokers, self._cast.nameserver):
            self._cut(member.process.name, server.name)

    def _cut(self, one: str, other: str) -> None:
        self._cast.changed(one, f"is cut off from {other}")
        self._cast.network.cut(one, other)

        def heal() -> None:
            self._cast.changed(one, f"reaches {other} again")
            self._cast.network.heal(one, other)

        self._until_calm(self._chance.uniform(0.5, 15.0), heal)

    def _tear(self) -> None:
        connections = self._cast.network.alive_connections()
        if not connections:
            return
        connection = self._chance.choice(connections)
        learns = [self._chance.uniform(0.0, 8.0), self._chance.uniform(0.0, 8.0)]
        never = self._chance.randint(0, 5)
        self._cast.changed(" and ".join(sorted(connection.names)), "lose a connection")
        connection.tear((None if never == 0 else learns[0], None if never == 1 else learns[1]))

    def _broker_crash(self) -> None:
        broker = self._chance.choice(self._cast.brokers)
        if not broker.process.alive or broker.process.paused:
            return
        if self._cast.options.foreign and self._cast.mode.locking:
            return  # Java trusts a lock for 30 s, also of a broker that has forgotten it
        self._cast.changed(broker.name, "crashes")
        broker.crash()

        def restart() -> None:
            self._cast.changed(broker.name, "starts")
            broker.restart()

        # Not cut short by the calm: how long it is away is a promise.
        self._world.after(self._chance.uniform(*self._cast.options.broker_away_s), restart)

    def _broker_pause(self) -> None:
        broker = self._chance.choice(self._cast.brokers)
        process = broker.process
        if process.paused or not process.alive:
            return
        self._cast.changed(broker.name, "pauses")
        process.pause()

        def resume() -> None:
            self._cast.changed(broker.name, "goes on")
            process.resume()

        self._until_calm(self._chance.uniform(0.5, 8.0), resume)

    def _nameserver_crash(self) -> None:
        if not self._cast.nameserver.process.alive:
            return
        self._cast.changed("nameserver", "crashes")
        self._cast.nameserver.crash()

        def restart() -> None:
            self._cast.changed("nameserver", "starts")
            self._cast.nameserver.restart()

        self._until_calm(self._chance.uniform(0.5, 10.0), restart)

    def _until_calm(self, delay_s: float, action: Callable[[], None]) -> None:
        self._world.at(min(self._world.now + delay_s, self._calm_at), action)
