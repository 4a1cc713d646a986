from __future__ import annotations

from gimbalmq.cli.worker.children import Child, ChildState, SupervisorSettings, restart_delay_s
from gimbalmq.cli.worker.events import ChildFailed, Failure

SETTINGS = SupervisorSettings(processes=1, quick_death_s=10.0, give_up_after=3)


def lived(child, lifetime_s, failure=None):
    """Let a child start and die."""
    child.begin(100.0)
    child.failure = failure
    child.count_death(SETTINGS, 100.0 + lifetime_s)
    return child


def test_every_start_has_its_own_number_and_none_of_the_last_one_s_words():
    child = Child(1)
    assert not child.alive
    lived(child, 1.0, ChildFailed(1, 1, Failure.UNUSABLE, "no such module"))
    child.begin(200.0)
    assert (child.epoch, child.started_at, child.failure) == (2, 200.0, None)
    assert child.state is ChildState.STARTING
    assert child.alive


def test_quick_deaths_in_a_row_are_too_many_at_some_point_and_a_long_life_ends_the_row():
    child = Child(1)
    for deaths in (1, 2):
        assert lived(child, 9.9).quick_deaths == deaths
        assert not child.hopeless(SETTINGS)
    assert lived(child, 10.0).quick_deaths == 0
    for _ in range(3):
        lived(child, 0.0)
    assert child.hopeless(SETTINGS)
    child.forgive()
    assert not child.hopeless(SETTINGS)
    assert child.restart_delay_s(SETTINGS) == 0.0


def test_a_child_without_servers_waits_longer_and_longer_but_is_never_too_many():
    child = Child(1)
    unreachable = ChildFailed(1, 1, Failure.UNREACHABLE, "no route")
    delays = [lived(child, 0.0, unreachable).restart_delay_s(SETTINGS) for _ in range(9)]
    assert delays == sorted(delays)
    assert delays[-1] == SETTINGS.longest_delay_s
    assert not child.hopeless(SETTINGS)


def test_the_pause_doubles_up_to_its_bound():
    settings = SupervisorSettings(processes=1, first_delay_s=1.0, longest_delay_s=10.0)
    delays = [restart_delay_s(settings, deaths) for deaths in range(2000)]
    assert delays[:6] == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert delays == sorted(delays)
    assert delays[-1] == 10.0
