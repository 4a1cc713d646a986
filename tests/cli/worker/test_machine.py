from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gimbalmq.cli.worker import events as ev
from gimbalmq.cli.worker.children import ChildState, SupervisorSettings
from gimbalmq.cli.worker.events import Failure, Notice, TimerName
from gimbalmq.cli.worker.machine import SupervisorMachine


class World:
    """Processes, timers and time as the machine asks for them; every effect is checked."""

    def __init__(self, processes=2, **settings) -> None:
        self.settings = SupervisorSettings(processes=processes, **settings)
        self.machine = SupervisorMachine(self.settings)
        self.now = 0.0
        #: Number -> (epoch, what it was told last).
        self.processes: dict[int, tuple[int, str]] = {}
        self.timers: list[tuple[float, ev.SetTimer]] = []
        self.told: list[ev.Tell] = []
        self.ended: int | None = None
        self.delays: list[float] = []

    def send(self, event) -> list[ev.Effect]:
        ready_before = self.ready()
        effects = self.machine.handle(event, self.now)
        for effect in effects:
            self._perform(effect, ready_before)
        return effects

    def _perform(self, effect, ready_before) -> None:
        assert self.ended is None, "nothing comes after the end"
        match effect:
            case ev.Spawn(number, epoch):
                assert number not in self.processes, "one process for each number"
                assert not self.machine.stopping
                self.processes[number] = epoch, ""
            case ev.Drain(number):
                epoch, told = self.processes[number]
                assert told == ""
                if not self.machine.stopping:
                    others = (ready_before | self.ready()) - {number}
                    assert others, "a reload leaves somebody who consumes"
                self.processes[number] = epoch, "drain"
            case ev.Hurry(number):
                self.processes[number] = self.processes[number][0], "hurry"
            case ev.Kill(number):
                assert number in self.processes
            case ev.SetTimer():
                self.timers.append((self.now + effect.delay_s, effect))
                if effect.name is TimerName.RESTART:
                    self.delays.append(effect.delay_s)
            case ev.Tell():
                self.told.append(effect)
            case ev.End(code):
                assert not self.processes
                self.ended = code

    def ready(self) -> set[int]:
        children = self.machine.children.values()
        return {child.number for child in children if child.state is ChildState.READY}

    def states(self) -> dict[int, str]:
        return {number: child.state.value for number, child in self.machine.children.items()}

    def begin(self) -> World:
        self.send(ev.Began())
        return self

    def come_up(self, *numbers) -> World:
        for number in numbers or list(self.processes):
            self.send(ev.ChildReady(number, self.processes[number][0]))
        return self

    def fail(self, number, failure, reason="why") -> None:
        self.send(ev.ChildFailed(number, self.processes[number][0], failure, reason))
        self.exit(number, 2)

    def exit(self, number, code=0) -> None:
        epoch, _ = self.processes.pop(number)
        self.send(ev.ChildExited(number, epoch, code))

    def pass_time(self, seconds) -> None:
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= until]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            timer = first[1]
            self.send(ev.TimerFired(timer.name, timer.number, timer.epoch))
        self.now = until

    def notices(self, notice) -> list[str]:
        return [tell.text for tell in self.told if tell.notice is notice]


def test_it_starts_as_many_children_as_asked_for():
    world = World(3).begin()
    assert sorted(world.processes) == [1, 2, 3]
    world.come_up()
    assert world.states() == {1: "ready", 2: "ready", 3: "ready"}


def test_a_child_that_ran_for_a_while_is_replaced_at_once():
    world = World(2).begin().come_up()
    world.pass_time(100)
    world.exit(1, -9)
    assert world.processes[1] == (2, "")
    assert world.notices(Notice.DIED) == ["was ended by signal 9"]
    assert world.machine.children[1].restarts == 1


def test_quick_deaths_wait_longer_and_longer_and_are_given_up():
    world = World(1, give_up_after=5).begin()
    for _ in range(4):
        world.exit(1, 1)
        assert world.states() == {1: "waiting"}
        world.pass_time(world.delays[-1])
    world.exit(1, 1)
    assert world.delays == [0.5, 1.0, 2.0, 4.0]
    assert "died 5 times" in world.notices(Notice.GIVEN_UP)[0]
    assert world.ended == 2


def test_a_long_life_forgives_quick_deaths():
    world = World(1).begin()
    world.exit(1, 1)
    world.pass_time(0.5)
    world.come_up()
    world.pass_time(60)
    world.exit(1, 1)
    assert world.machine.children[1].quick_deaths == 0
    assert 1 in world.processes


def test_the_rest_goes_on_when_one_child_is_given_up():
    world = World(2, give_up_after=1).begin().come_up(2)
    world.exit(1, 1)
    assert world.states() == {1: "given_up", 2: "ready"}
    assert world.ended is None
    world.send(ev.StopAsked())
    world.exit(2)
    assert world.ended == 2, "a child that was given up is a failure"


def test_servers_that_cannot_be_reached_are_waited_for():
    world = World(1, give_up_after=2, longest_delay_s=3.0).begin()
    for _ in range(10):
        world.fail(1, Failure.UNREACHABLE)
        world.pass_time(world.delays[-1])
    assert world.ended is None
    assert max(world.delays) == 3.0
    world.come_up()
    world.exit(1, 1)
    assert world.delays[-1] == 0.5, "servers that are back are forgotten"


def test_a_command_line_that_never_worked_ends_it_all_at_once():
    world = World(3).begin()
    world.fail(2, Failure.UNUSABLE, "no module named 'nope'")
    assert world.notices(Notice.FAILED) == ["no module named 'nope'"]
    world.fail(1, Failure.UNUSABLE, "no module named 'nope'")
    world.exit(3, 0)
    assert world.ended == 2
    assert len(world.notices(Notice.FAILED)) == 1


def test_a_child_that_does_not_come_up_is_killed():
    world = World(1, start_timeout_s=20).begin()
    world.pass_time(19)
    assert world.notices(Notice.KILLED) == []
    world.pass_time(2)
    assert world.notices(Notice.KILLED) == ["did not consume within 20 s"]


def test_a_stop_drains_all_and_ends_well():
    world = World(2).begin().come_up()
    world.send(ev.StopAsked())
    assert {told for _, told in world.processes.values()} == {"drain"}
    world.exit(1)
    assert world.ended is None
    world.exit(2)
    assert world.ended == 0


def test_the_second_stop_hurries_and_the_third_kills():
    world = World(2).begin().come_up()
    world.send(ev.StopAsked())
    world.send(ev.StopAsked())
    assert {told for _, told in world.processes.values()} == {"hurry"}
    assert ev.Kill(1) in world.send(ev.StopAsked())


def test_a_child_that_does_not_leave_is_killed_and_that_is_a_failure():
    world = World(1, drain_s=10).begin().come_up()
    world.send(ev.StopAsked())
    world.pass_time(24)
    assert world.notices(Notice.KILLED) == []
    world.pass_time(2)
    assert len(world.notices(Notice.KILLED)) == 1
    world.exit(1, -9)
    assert world.ended == 2


def test_a_stop_while_a_child_waits_for_its_restart_starts_nothing():
    world = World(1).begin()
    world.exit(1, 1)
    world.send(ev.StopAsked())
    assert world.ended == 0


def test_a_reload_replaces_one_child_after_the_other():
    world = World(2).begin().come_up()
    world.send(ev.ReloadAsked())
    assert world.states() == {1: "draining", 2: "ready"}
    world.exit(1)
    assert world.states() == {1: "starting", 2: "ready"}
    world.come_up(1)
    assert world.states() == {1: "ready", 2: "draining"}
    world.exit(2)
    world.come_up(2)
    assert world.states() == {1: "ready", 2: "ready"}
    assert world.notices(Notice.RELOADED)
    assert world.machine.reloads == {"completed": 1}
    assert {epoch for epoch, _ in world.processes.values()} == {2}


def test_an_only_child_is_replaced_by_one_that_starts_first():
    world = World(1).begin().come_up()
    world.send(ev.ReloadAsked())
    assert world.states() == {1: "ready", 2: "starting"}
    world.come_up(2)
    assert world.states() == {1: "draining", 2: "ready"}
    world.exit(1)
    assert world.states() == {2: "ready"}
    world.send(ev.ReloadAsked())
    assert world.states() == {1: "starting", 2: "ready"}


def test_a_replacement_that_does_not_come_up_halts_the_reload():
    world = World(3).begin().come_up()
    world.send(ev.ReloadAsked())
    world.exit(1)
    world.fail(1, Failure.UNUSABLE, "syntax error")
    assert world.states() == {1: "waiting", 2: "ready", 3: "ready"}
    assert "new child 1" in world.notices(Notice.RELOAD_HALTED)[0]
    assert world.machine.reloads == {"halted": 1}
    world.pass_time(0.5)
    world.come_up(1)
    assert world.states() == {1: "ready", 2: "ready", 3: "ready"}, "mended code heals it"


def test_an_only_child_stays_when_its_replacement_does_not_come_up():
    world = World(1).begin().come_up()
    world.send(ev.ReloadAsked())
    world.fail(2, Failure.UNUSABLE, "syntax error")
    assert world.states() == {1: "ready"}
    assert world.ended is None


def test_an_only_child_that_dies_while_its_replacement_starts_leaves_one():
    world = World(1, give_up_after=1).begin().come_up()
    world.send(ev.ReloadAsked())
    world.exit(1, 1)
    assert world.states() == {1: "given_up", 2: "starting"}
    world.come_up(2)
    assert world.states() == {2: "ready"}
    assert world.notices(Notice.RELOADED)


def test_a_reload_waits_for_children_that_start():
    world = World(2).begin().come_up(1)
    world.send(ev.ReloadAsked())
    assert world.states() == {1: "ready", 2: "starting"}
    world.come_up(2)
    assert world.states() == {1: "draining", 2: "ready"}


def test_a_reload_gives_those_another_chance_that_were_given_up():
    world = World(2, give_up_after=1).begin().come_up(2)
    world.exit(1, 1)
    world.send(ev.ReloadAsked())
    assert world.states() == {1: "starting", 2: "ready"}
    world.come_up(1)
    world.exit(2)
    world.come_up(2)
    world.send(ev.StopAsked())
    world.exit(1)
    world.exit(2)
    assert world.ended == 0


def test_news_of_an_earlier_process_is_ignored():
    world = World(1).begin().come_up()
    world.pass_time(60)
    world.exit(1, 1)
    assert world.send(ev.ChildReady(1, 1)) == []
    assert world.states() == {1: "starting"}


class Supervised(RuleBasedStateMachine):
    """Whatever children and people do: the promises hold, and things come to rest."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(1)

    @initialize(processes=st.integers(1, 4), give_up_after=st.integers(1, 4))
    def begin(self, processes, give_up_after):
        self.world = World(processes, give_up_after=give_up_after).begin()

    @rule(data=st.data())
    @precondition(lambda self: self.world.processes)
    def come_up(self, data):
        number = data.draw(st.sampled_from(sorted(self.world.processes)))
        self.world.come_up(number)

    @rule(data=st.data(), code=st.sampled_from([0, 1, -9]))
    @precondition(lambda self: self.world.processes)
    def exit(self, data, code):
        self.world.exit(data.draw(st.sampled_from(sorted(self.world.processes))), code)

    @rule(data=st.data(), failure=st.sampled_from(list(Failure)))
    @precondition(lambda self: self.world.processes)
    def fail(self, data, failure):
        self.world.fail(data.draw(st.sampled_from(sorted(self.world.processes))), failure)

    @rule(seconds=st.floats(0.0, 200.0))
    def pass_time(self, seconds):
        self.world.pass_time(seconds)

    @rule()
    def reload(self):
        self.world.send(ev.ReloadAsked())

    @rule()
    def stop(self):
        self.world.send(ev.StopAsked())

    @invariant()
    def there_is_one_process_for_each_child_that_lives_and_at_most_one_more_than_asked_for(self):
        world = self.world
        alive = {n: c.epoch for n, c in world.machine.children.items() if c.alive}
        assert alive == {number: epoch for number, (epoch, _) in world.processes.items()}
        assert len(alive) <= world.settings.processes + 1

    @invariant()
    def nothing_runs_after_the_end_and_the_end_comes_when_nothing_runs(self):
        world = self.world
        waiting = "waiting" in world.states().values()
        if world.told and not world.processes and not waiting:
            assert world.ended is not None

    def teardown(self):
        """Left alone, with children that come up, every one is there again and reloads are done."""
        world = self.world
        if not world.told or world.ended is not None:
            return
        for _ in range(60):
            if world.machine.stopping:
                for number in list(world.processes):
                    world.exit(number)
                break
            world.pass_time(30.0)
            starting = [n for n, state in world.states().items() if state == "starting"]
            draining = [n for n, state in world.states().items() if state == "draining"]
            if starting:
                world.come_up(*starting)
            for number in draining:
                world.exit(number)
        states = set(world.states().values())
        if world.machine.stopping:
            assert world.ended is not None
        else:
            assert states <= {"ready", "given_up"}
            assert len(world.states()) == world.settings.processes
            assert not world.machine.reloading


TestSupervised = Supervised.TestCase
TestSupervised.settings = hypothesis_settings(max_examples=150, stateful_step_count=30)
