from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gimbalmq.cli.demo import command, spark_count
from gimbalmq.cli.demo.board import Board, Offsets, Traffic
from gimbalmq.cli.demo.changes import Change, Delivery, Holding, Move, Outcome, judge_change
from gimbalmq.cli.demo.checks import (
    Check,
    check_all_consumed,
    check_members_listed,
    check_offsets,
    check_one_owner,
    check_settled,
    check_shares,
    check_spark,
)
from gimbalmq.cli.demo.engines import ENGINES, default_engine
from gimbalmq.cli.demo.processes import ReportingProcess
from gimbalmq.cli.demo.reports import LINE_BYTES_MAX, Owned, Received, decode, encode
from gimbalmq.cli.demo.screen import Screen
from gimbalmq.cli.demo.summary import (
    SparkSummary,
    Summary,
    summarise_changes,
    summarise_members,
    summarise_traffic,
)
from gimbalmq.cli.demo.tables import (
    ASCII,
    UNICODE,
    change_lines,
    changes_table,
    count_table,
    figures_table,
    moves_text,
    ownership_table,
)
from gimbalmq.cli.main import main
from gimbalmq.errors import EngineError
from gimbalmq.model.queue import MessageQueue

QUEUES = tuple(
    MessageQueue("orders", broker, n) for broker in ("broker-a", "broker-b") for n in (0, 1)
)
A0, A1, B0, B1 = QUEUES
IDS = {"python-1": "python-1@gmq1-AVG", "python-2": "python-2@gmq1-AVG"}


def holding(at: float, member: str, *queues: MessageQueue) -> Holding:
    return Holding(at, member, frozenset(queues))


def everything_to(member: str) -> dict[MessageQueue, str]:
    return dict.fromkeys(QUEUES, member)


def kill_of_python_2(*later: Holding, deliveries=(), until: float = 20.0) -> Outcome:
    """python-2 holds the queues of broker-b and is killed at 10."""
    before = [holding(1, "python-1", A0, A1), holding(2, "python-2", B0, B1)]
    return judge_change(
        Change("kill", "python-2", 10.0),
        holdings=[*before, holding(10, "python-2"), *later],
        deliveries=deliveries,
        target=everything_to("python-1"),
        until=until,
    )


# ---- changes ---------------------------------------------------------------------------------


def test_a_kill_moves_the_queues_of_the_dead_and_is_timed():
    outcome = kill_of_python_2(
        holding(10.4, "python-1", A0, A1, B0),
        holding(10.5, "python-1", *QUEUES),
        deliveries=[Delivery(10.6, "python-1", B0), Delivery(10.9, "python-1", B1)],
    )
    assert outcome.moves == (
        Move(B0, "python-2", "python-1"),
        Move(B1, "python-2", "python-1"),
    )
    assert outcome.unowned_s == pytest.approx(0.5)
    assert outcome.settled_s == pytest.approx(0.5)
    assert outcome.delivered_s == pytest.approx(0.9)
    assert outcome.doubled_s == 0


def test_a_change_is_open_until_every_queue_is_with_its_new_owner():
    outcome = kill_of_python_2(holding(10.4, "python-1", A0, A1, B0), until=12.0)
    assert outcome.settled_s is None
    assert outcome.unowned_s == pytest.approx(2.0)


def test_a_state_that_did_not_last_is_not_settled():
    late = [
        holding(10.5, "python-1", *QUEUES),
        holding(11, "python-1", A0, A1),
        holding(13, "python-1", *QUEUES),
    ]
    assert kill_of_python_2(*late[:2]).settled_s is None
    assert kill_of_python_2(*late).settled_s == pytest.approx(3.0)
    assert kill_of_python_2(*late).unowned_s == pytest.approx(2.5)


def test_deliveries_count_only_from_the_new_owner_and_from_the_begin_on():
    early = Delivery(9.9, "python-1", B0)
    foreign = Delivery(10.2, "python-2", B0)
    settled = holding(10.5, "python-1", *QUEUES)
    one = [early, foreign, Delivery(10.7, "python-1", B1)]
    assert kill_of_python_2(settled, deliveries=one).delivered_s is None


def test_what_is_said_after_the_end_of_the_look_does_not_count():
    outcome = kill_of_python_2(holding(15, "python-1", *QUEUES), until=12.0)
    assert outcome.settled_s is None


def test_a_queue_that_two_members_hold_for_a_while_is_noticed():
    outcome = judge_change(
        Change("join", "python-2", 5.0),
        holdings=[
            holding(1, "python-1", *QUEUES),
            holding(6, "python-2", B0, B1),
            holding(6.25, "python-1", A0, A1),
        ],
        deliveries=[],
        target={A0: "python-1", A1: "python-1", B0: "python-2", B1: "python-2"},
        until=8.0,
    )
    assert outcome.doubled_s == pytest.approx(0.25)
    assert outcome.unowned_s == 0
    assert outcome.settled_s == pytest.approx(1.25)


def test_the_first_member_takes_queues_that_nobody_had():
    outcome = judge_change(
        Change("join", "python-1", 5.0),
        holdings=[holding(6, "python-1", *QUEUES)],
        deliveries=[],
        target=everything_to("python-1"),
        until=8.0,
    )
    assert {move.before for move in outcome.moves} == {None}
    assert outcome.unowned_s == outcome.settled_s == pytest.approx(1.0)


def test_a_change_that_moves_nothing_is_settled_and_delivers_at_once():
    outcome = judge_change(
        Change("leave", "python-2", 5.0),
        holdings=[holding(1, "python-1", *QUEUES), holding(1, "python-2"), holding(5, "python-2")],
        deliveries=[],
        target=everything_to("python-1"),
        until=8.0,
    )
    assert (outcome.moves, outcome.settled_s, outcome.delivered_s) == ((), 0.0, 0.0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100),
            st.sampled_from(["python-1", "python-2"]),
            st.frozensets(st.sampled_from(QUEUES)),
        )
    )
)
def test_time_with_and_without_owner_never_exceeds_the_time_watched(said):
    outcome = judge_change(
        Change("join", "python-2", 50.0),
        holdings=[Holding(float(at), name, queues) for at, name, queues in said],
        deliveries=[],
        target=everything_to("python-2"),
        until=100.0,
    )
    assert 0 <= outcome.unowned_s <= 50
    assert 0 <= outcome.doubled_s <= 50
    assert outcome.settled_s is None or outcome.unowned_s <= outcome.settled_s
    assert all(move.before != move.after for move in outcome.moves)


# ---- the board -------------------------------------------------------------------------------


def board_of_two() -> Board:
    """python-1 and python-2 share the queues; python-2 joined at 5 and had settled at 6."""
    board = Board(reversed(QUEUES))
    board.joining("python-1", "python", IDS["python-1"], 1.0)
    board.owns("python-1", QUEUES, 2.0)
    board.joining("python-2", "python", IDS["python-2"], 5.0)
    board.rebalanced("python-2", "start", 5.1)
    board.rebalanced("python-1", "notice from a broker", 5.2)
    board.owns("python-1", (A0, A1), 5.5)
    board.owns("python-2", (B0, B1), 6.0)
    return board


def test_the_board_knows_who_should_own_what():
    board = board_of_two()
    assert board.target() == {A0: "python-1", A1: "python-1", B0: "python-2", B1: "python-2"}
    board.gone("python-1", "killed", 7.0)
    assert board.target() == everything_to("python-2")


def test_each_change_is_judged_by_the_members_it_had():
    board = board_of_two()
    board.gone("python-2", "left", 10.0)
    board.owns("python-1", QUEUES, 11.0)
    board.end(12.0)
    first, second, third = board.view(12.0).outcomes
    assert [one.change.kind for one in (first, second, third)] == ["join", "join", "leave"]
    assert [one.settled_s for one in (first, second, third)] == [1.0, 1.0, 1.0]
    assert [len(one.moves) for one in (first, second, third)] == [4, 2, 2]


def test_the_reason_is_what_the_others_were_told():
    outcome = board_of_two().outcome(7.0)
    assert outcome is not None
    assert outcome.trigger == "notice from a broker"


def test_words_of_a_dead_member_do_not_bring_it_back():
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    board.owns("python-2", (B0,), 6.9)
    assert board.view(8.0).members[1].queues == frozenset()


def test_messages_are_counted_once_and_again():
    board = board_of_two()
    board.received("python-1", "early", A0, 6.0)
    for key in ("early", "lost", "twice"):
        board.sent(key, A0)
    board.received("python-1", "twice", A0, 6.1)
    board.received("python-2", "twice", A0, 6.2)
    board.unanswered()
    traffic = board.view(7.0).traffic
    assert (traffic.sent, traffic.consumed, traffic.lost) == (3, 2, 1)
    assert (traffic.deliveries, traffic.duplicates, traffic.unanswered) == (3, 1, 1)


# ---- checks ----------------------------------------------------------------------------------


def test_a_healthy_group_passes_every_check():
    board = board_of_two()
    board.sent("one", A0)
    board.received("python-1", "one", A0, 7.0)
    board.reached({queue: Offsets(1, 1) for queue in QUEUES})
    board.end(8.0)
    view = board.view(8.0)
    checks = [
        check_settled(view, limit_s=45),
        check_all_consumed(view),
        check_one_owner(view),
        check_shares(view, board.target()),
        check_members_listed(view, {"broker-a": list(IDS.values())}),
        check_offsets(view),
        check_spark({A0.path: 1}, view.sent, 0),
    ]
    assert [check.name for check in checks if not check.passed] == []


def test_a_lost_message_is_a_finding():
    board = board_of_two()
    board.sent("one", A0)
    check = check_all_consumed(board.view(8.0))
    assert not check.passed
    assert "1 never came" in check.sentence


def test_a_message_more_than_was_acknowledged_needs_a_send_without_answer():
    board = board_of_two()
    board.sent("one", A0)
    for key in ("one", "stray"):
        board.received("python-1", key, A0, 7.0)
    check = check_all_consumed(board.view(8.0))
    assert not check.passed
    assert "1 that nobody sent" in check.sentence
    board.unanswered()
    check = check_all_consumed(board.view(8.0))
    assert check.passed
    assert "1 of them from 1 sends without answer" in check.sentence


def test_no_message_at_all_proves_nothing():
    assert not check_all_consumed(board_of_two().view(8.0)).passed


def test_a_queue_without_or_with_two_owners_is_named():
    board = board_of_two()
    board.owns("python-1", (A0, B0), 7.0)
    check = check_one_owner(board.view(8.0))
    assert not check.passed
    assert "orders/broker-a/1 has none" in check.sentence
    assert "orders/broker-b/0 has python-1 and python-2" in check.sentence


def test_shares_that_are_not_the_strategys_are_a_finding_even_with_one_owner_each():
    board = board_of_two()
    board.owns("python-1", (A0, B0), 7.0)
    board.owns("python-2", (A1, B1), 7.0)
    view = board.view(8.0)
    assert check_one_owner(view).passed
    assert not check_shares(view, board.target()).passed


def test_a_change_that_never_settled_is_named():
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    board.end(60.0)
    check = check_settled(board.view(60.0), limit_s=45)
    assert not check.passed
    assert "python-2 (kill)" in check.sentence
    assert not check_settled(Board(QUEUES).view(0.0), limit_s=45).passed


def test_a_dead_member_that_a_broker_still_lists_is_a_finding():
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    listed = {"broker-a": [IDS["python-1"]], "broker-b": list(IDS.values())}
    check = check_members_listed(board.view(8.0), listed)
    assert not check.passed
    assert "broker-b lists" in check.sentence
    assert "broker-a" not in check.sentence


def test_a_group_that_is_behind_is_a_finding():
    board = board_of_two()
    board.reached(dict.fromkeys(QUEUES, Offsets(1, 1)) | {B1: Offsets(1, 4)})
    assert "orders/broker-b/1 by 3" in check_offsets(board.view(8.0)).sentence
    assert not check_offsets(board_of_two().view(8.0)).passed


@pytest.mark.parametrize(
    ("rows", "unanswered", "passed"),
    [
        ({A0.path: 2, A1.path: 1}, 0, True),
        ({A0.path: 2}, 0, False),
        ({A0.path: 1, A1.path: 2}, 0, False),
        ({A0.path: 3, A1.path: 1}, 0, False),
        ({A0.path: 3, A1.path: 1}, 1, True),
        ({A0.path: 3, A1.path: 2}, 1, False),
        ({A0.path: 2, A1.path: 1, "orders/broker-c/0": 1}, 0, False),
        ({}, 5, False),
    ],
)
def test_spark_must_count_queue_by_queue_what_was_sent(rows, unanswered, passed):
    assert check_spark(rows, {A0: 2, A1: 1, B0: 0}, unanswered).passed is passed


# ---- what is shown ---------------------------------------------------------------------------


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


def test_sparks_count_stands_beside_what_was_sent():
    board = board_of_two()
    board.sent("one", A0)
    shown = text_of(count_table(board.view(7.0), {A0.path: 1}))
    assert cells(shown, "sent") == ["sent", "1", "0", "0", "0", "1"]
    assert cells(shown, "Spark") == ["Spark", "1", "0", "0", "0", "1"]


def summary_of(*checks: Check, spark: SparkSummary | None = None) -> Summary:
    board = board_of_two()
    board.gone("python-2", "killed", 7.0)
    board.owns("python-1", QUEUES, 7.25)
    board.end(8.0)
    view = board.view(8.0)
    return Summary(
        passed=all(check.passed for check in checks),
        engine="apache",
        version="5.5.0",
        nameserver="127.0.0.1:1",
        topic="orders",
        group="billing",
        brokers=2,
        queues=4,
        seconds=1.0,
        messages=summarise_traffic(Traffic(sent=1, unanswered=2, consumed=2, deliveries=2, lost=0)),
        members=summarise_members(view),
        changes=summarise_changes(view),
        spark=spark or SparkSummary(skipped="left out"),
        checks=checks,
    )


def test_the_figures_name_the_kill_and_the_failed_checks():
    shown = text_of(figures_table(summary_of(Check("a", True, ""), Check("b", False, ""))))
    assert "all owned again after 0.25 s" in shown
    assert "1 of 2 passed" in shown
    assert "2, of which 1 were stored" in shown
    assert "left out" in shown
    counted = SparkSummary("4.3.0", 12, {}, 1.5)
    assert "12 rows counted by Spark 4.3.0" in text_of(figures_table(summary_of(spark=counted)))


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


# ---- child processes -------------------------------------------------------------------------


def test_a_report_survives_the_pipe_and_fits_into_one_write():
    many = Owned(1.5, tuple(MessageQueue("orders", "broker-a", n) for n in range(50)))
    assert decode(encode(many)) == many
    assert len(encode(many)) <= LINE_BYTES_MAX
    assert decode(encode(Received(1.0, "k", A0))) == Received(1.0, "k", A0)


def test_a_child_that_fails_is_named_with_its_last_words(tmp_path):
    process = ReportingProcess(
        "python-9", "gimbalmq.no_such_module", (), log=tmp_path / "log", on_report=print
    )
    process.check()
    process.start()
    assert process.wait(30) != 0
    with pytest.raises(EngineError, match=r"(?s)python-9 ended by itself.*no_such_module"):
        process.check()


def test_a_member_without_name_server_says_why_and_ends(tmp_path):
    heard = []
    process = ReportingProcess(
        "python-9",
        "gimbalmq.cli.demo.member",
        ("127.0.0.1:1", "billing", "orders", "python-9"),
        log=tmp_path / "log",
        on_report=heard.append,
    )
    process.start()
    assert process.wait(60) == 1
    assert "127.0.0.1:1" in heard[-1].message


# ---- the command -----------------------------------------------------------------------------


def run_with(monkeypatch, summary: Summary, *arguments: str, ended_by=signal.SIGTERM) -> int:
    class Cluster:
        nameserver = "127.0.0.1:1"

    class Stage:
        cluster = Cluster()

        @staticmethod
        @contextlib.contextmanager
        def opened(plan):
            yield Stage

    class Story:
        def __init__(self, *parts) -> None:
            pass

        def tell(self) -> Summary:
            return summary

        def keep(self) -> None:
            os.kill(os.getpid(), ended_by)
            signal.pause()

    monkeypatch.setattr(command, "Stage", Stage)
    monkeypatch.setattr(command, "Story", Story)
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_failed_check_is_exit_code_one_and_a_clear_line(monkeypatch, capsys):
    failed = Check("nothing lost", False, "3 never came")
    assert run_with(monkeypatch, summary_of(failed)) == 1
    assert "FAILED: nothing lost: 3 never came" in capsys.readouterr().out


def test_json_is_one_document_and_all_else_goes_to_stderr(monkeypatch, capsys):
    assert run_with(monkeypatch, summary_of(Check("a", True, "b")), "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["checks"] == [{"name": "a", "passed": True, "sentence": "b"}]
    assert "[1/8]" in told.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_keep_tells_how_to_connect_and_ends_well_with_a_signal(monkeypatch, capsys, number):
    before = signal.getsignal(number)
    assert run_with(monkeypatch, summary_of(), "--keep", ended_by=number) == 0
    assert "export NAMESRV_ADDR=127.0.0.1:1" in capsys.readouterr().out
    assert signal.getsignal(number) == before


def test_an_unknown_engine_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--engine", "steam"])
    assert caught.value.code == 2


def test_the_default_engine_is_the_first_and_knows_its_versions():
    assert default_engine() in ENGINES
    assert "5.5.0" in ENGINES["apache"].versions()


def test_missing_spark_says_what_to_install(monkeypatch):
    monkeypatch.setattr(spark_count.importlib.util, "find_spec", lambda name: None)
    assert 'pip install "gimbalmq[spark]"' in (spark_count.spark_missing() or "")


# ---- the real thing --------------------------------------------------------------------------

DEMO = (sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "demo")


def descendants(pid: int) -> set[int]:
    """Process ids of all children, their children and so on."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text(encoding="utf-8").split()):
            found |= {child, *descendants(child)}
    return found


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_keeps_its_promises(rocketmq_version):
    answer = subprocess.run(
        [*DEMO, "--version", rocketmq_version, "--json"],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    summary = json.loads(answer.stdout)
    assert summary["passed"] is True
    assert len(summary["checks"]) == 7
    messages = summary["messages"]
    assert messages["sent"] > 300
    assert messages["lost"] == 0
    fates = {member["name"]: member["fate"] for member in summary["members"]}
    assert fates == {
        "python-1": "member",
        "python-2": "killed",
        "python-3": "left",
        "java-1": "member",
    }
    held = [queue for member in summary["members"] for queue in member["queues"]]
    assert sorted(held) == sorted(
        f"orders/{broker}/{number}" for broker in ("broker-a", "broker-b") for number in range(4)
    )
    assert [(change["kind"], change["member"]) for change in summary["changes"]] == [
        ("join", "python-1"),
        ("join", "python-2"),
        ("join", "python-3"),
        ("join", "java-1"),
        ("kill", "python-2"),
        ("leave", "python-3"),
    ]
    kill = summary["changes"][4]
    assert {move["queue"] for move in kill["moves"] if move["before"] == "python-2"}
    assert all(member["received"] for member in summary["members"])
    # A send without answer may have been stored, on a machine too busy to say so in time.
    assert 0 <= summary["spark"]["rows"] - messages["sent"] <= messages["unanswered"]
    assert sum(summary["spark"]["by_queue"].values()) == summary["spark"]["rows"]


@pytest.mark.timeout(400)
def test_an_interrupted_demo_leaves_no_process(rocketmq_version):
    with subprocess.Popen(
        [*DEMO, "--version", rocketmq_version, "--no-spark"], stdout=subprocess.PIPE, text=True
    ) as process:
        # Ends a demo that hangs, so that the loop below cannot wait for ever.
        bound = threading.Timer(300, process.kill)
        bound.start()
        assert process.stdout is not None
        for line in process.stdout:
            if "python-2 joins" in line:
                break
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        bound.cancel()
    # Name server, two brokers, two Python members.
    assert len(started) >= 5
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
