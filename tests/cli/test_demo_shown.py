"""What people see of the demo: tables, words, colours."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.demo_board import (
    A0,
    B0,
    B1,
    SKEWED,
    board_of_two,
    kill_of_python_2,
    profile_of,
    summary_of,
)
from gimbalmq.cli.demo.board import Offsets
from gimbalmq.cli.demo.changes import Move
from gimbalmq.cli.demo.checks import Check
from gimbalmq.cli.demo.screen import Screen
from gimbalmq.cli.demo.summary import SparkSummary
from gimbalmq.cli.demo.tables import (
    ASCII,
    UNICODE,
    change_lines,
    changes_table,
    count_table,
    figures_table,
    load_table,
    moves_text,
    ownership_table,
    spread_table,
)


def text_of(renderable) -> str:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def cells(table: str, first: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.split()[:1] == [first])
    return line.split()


def test_the_table_shows_members_by_queues():
    board = board_of_two()
    board.sent("one", A0)
    board.received("python-1", "one", A0, 7.0)
    board.reached({A0: Offsets(0, 1)})
    board.gone("python-2", "killed", 8.0)
    shown = text_of(ownership_table(board.view(8.5), UNICODE))
    assert cells(shown, "member") == ["member", "a0", "a1", "b0", "b1", "messages"]
    assert cells(shown, "python-1") == ["python-1", "python", "●", "●", "·", "·", "1"]
    assert cells(shown, "python-2") == ["python-2", "killed", "·", "·", "·", "·", "0"]
    assert cells(shown, "owners") == ["owners", "1", "1", "0", "0"]
    assert cells(shown, "sent") == ["sent", "1", "0", "0", "0", "1"]
    assert cells(shown, "lag") == ["lag", "1", "0", "0", "0", "1"]


def test_changes_are_shown_while_they_run_and_when_they_are_done():
    board = board_of_two()
    board.gone("python-2", "killed", 8.0)
    shown = text_of(changes_table(board.view(8.5), UNICODE))
    assert "a0 a1 b0 b1 → python-1" in shown
    assert "notice from a broker" in shown
    assert "1.00 s" in shown
    assert "..." in shown
    assert len(text_of(changes_table(board.view(8.5), UNICODE, latest=1)).splitlines()) == 3


def test_a_change_is_told_in_words():
    outcome = board_of_two().outcome(7.0)
    assert outcome is not None
    what, how_long = change_lines(outcome, ASCII)
    assert what == "python-2 joins, 2 queues moved: b0 b1 -> python-2"
    assert "settled after 1.00 s" in how_long
    assert "because of: notice from a broker" in how_long
    unsettled = change_lines(kill_of_python_2(), ASCII)
    assert unsettled == ("python-2 killed (-9): the queues are not settled",)


def test_moves_are_grouped_by_the_new_owner():
    moves = [Move(A0, "x", "java-1"), Move(B0, "x", "python-1"), Move(B1, "x", "java-1")]
    assert moves_text(moves, ASCII) == "a0 b1 -> java-1, b0 -> python-1"
    assert moves_text([], ASCII) == "none"


def test_what_the_files_hold_stands_beside_what_was_sent():
    board = board_of_two()
    board.sent("one", A0)
    shown = text_of(count_table(board.view(7.0), {A0.path: 1}))
    assert cells(shown, "sent") == ["sent", "1", "0", "0", "0", "1"]
    assert cells(shown, "files") == ["files", "1", "0", "0", "0", "1"]


def test_the_load_is_shown_by_queue_with_its_owner():
    loads = {queue.path: load for queue, load in SKEWED.items()}
    shown = text_of(load_table(board_of_two().view(7.0), loads, ASCII))
    assert cells(shown, "a0") == ["a0", "python-1", "1", "1%"]
    assert cells(shown, "b0") == ["b0", "python-2", "40", "55%", "#" * 16]


def test_strategies_are_compared_for_every_size_but_one():
    shown = text_of(spread_table(profile_of(SKEWED).spread, now="AVG"))
    assert cells(shown, "busiest")[-4:] == ["of", "2", "of", "3"]
    assert cells(shown, "AVG") == ["AVG", "(now)", "1.92", "1.64"]
    assert cells(shown, "WEIGHTED")[1] == "1.10"


def test_the_table_shows_how_far_sparks_stream_is():
    board = board_of_two()
    board.streamed({A0: 3, B1: 4})
    shown = text_of(ownership_table(board.view(7.0), UNICODE))
    assert cells(shown, "Spark") == ["Spark", "stream", "3", "0", "0", "4", "7"]


def test_the_figures_name_the_kill_and_the_failed_checks():
    shown = text_of(figures_table(summary_of(Check("a", True, ""), Check("b", False, ""))))
    assert "all owned again after 0.25 s" in shown
    assert "1 of 2 passed" in shown
    assert "2, of which 1 were stored" in shown
    assert "left out" in shown
    streamed = SparkSummary("4.3.0", 12, seconds=1.5)
    assert "12 rows streamed into files by Spark 4.3.0" in text_of(
        figures_table(summary_of(spark=streamed))
    )


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_log_gets_lines_and_no_escape_codes(encoding):
    raw = io.BytesIO()
    screen = Screen(2, console=Console(file=io.TextIOWrapper(raw, encoding=encoding)))
    board = board_of_two()
    screen.step("First")
    with screen.waiting("patience"), screen.watching(board):
        screen.settled(board.outcome(7.0), board)
    screen.verdict(Check("good", True, "very"))
    screen.board(board.view(7.0))
    screen.console.file.flush()
    shown = raw.getvalue().decode(encoding)
    assert "\x1b" not in shown
    assert "[1/2] First" in shown
    assert "patience ..." in shown
    assert ("#" if encoding == "ascii" else "●") in shown


def test_a_terminal_gets_a_live_board():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=40)
    screen = Screen(2, console=console)
    with screen.watching(board_of_two()):
        pass
    assert "python-2" in out.getvalue()
    assert "\x1b" in out.getvalue()
