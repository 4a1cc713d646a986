from __future__ import annotations

import io
import signal

from rich.console import Console

from cli.admin_stage import run
from gimbalmq import PushConsumer
from gimbalmq.cli.group_live import LivePicture, Look, QueueRow
from gimbalmq.client.admin import Member

ANN, BOB = (Member(one, "10.0.0.1:9", "JAVA", "5.5.0", None) for one in ("ann", "bob[red]"))


def row(number, owner, lag=3):
    return QueueRow("orders", "broker-a", number, owner, 7, 0, 7 + lag, lag)


def drawn(picture, *look):
    console = Console(file=io.StringIO(), width=120)
    *seen, at = look
    console.print(picture.see(Look(*seen), at))
    return console.file.getvalue()


def test_the_picture_shows_members_queues_lag_and_what_moved():
    picture = LivePicture("billing")
    text = drawn(picture, [ANN], [row(0, "ann"), row(1, "ann", 5)], "12:00:00")
    assert "1 members" in text
    assert " 8 " in text, "the lag of a member is that of its queues"
    assert list(picture.moves) == [], "what was there at the start has not moved"
    text = drawn(picture, [ANN, BOB], [row(0, "ann"), row(1, "bob[red]")], "12:00:01")
    assert list(picture.moves) == [("12:00:01", "orders/broker-a/1", "ann", "bob[red]")]
    assert "bob[red]" in text, "names are not mark-up"
    drawn(picture, [ANN], [row(0, "ann"), row(1, None)], "12:00:02")
    assert picture.moves[0] == ("12:00:02", "orders/broker-a/1", "bob[red]", None)


def test_a_member_that_does_not_answer_is_not_shown_as_one_without_queues():
    text = drawn(LivePicture("billing"), [ANN, BOB], [row(0, "ann")], {"bob[red]"}, "12:00:00")
    (line,) = [one for one in text.splitlines() if "bob[red]" in one]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["bob[red]", "-", "-"]


def test_old_moves_make_room_for_new_ones():
    picture = LivePicture("billing")
    for second in range(40):
        drawn(picture, [ANN], [row(0, ("ann", "bob[red]")[second % 2])], f"12:00:{second}")
    assert len(picture.moves) == 8
    assert picture.moves[0][0] == "12:00:39"


def test_live_ends_by_itself_when_told_so(cluster, unique_name):
    topic, group = unique_name("topic"), unique_name("group")
    cluster.create_topic(topic, queues=2)
    consumer = PushConsumer(group, nameserver=cluster.nameserver, client_id="ann")
    consumer.subscribe(topic, listener=lambda message: None)
    with consumer:
        said = run(cluster, "group", "show", group, "--live", "--for", "0.5", "--interval", "0.2")
    assert said.code == 0, said.err
    assert "Recent moves" in said.out
    refused = run(cluster, "group", "show", group, "--live", "--json")
    assert (refused.code, refused.out) == (2, "")


def test_ctrl_c_is_the_regular_end_of_a_live_picture(cluster, group, member, monkeypatch):
    draw = LivePicture.see

    def draw_and_end(picture, look, at):
        drawn_once.append(draw(picture, look, at))
        signal.raise_signal(signal.SIGINT)

    drawn_once = []
    monkeypatch.setattr(LivePicture, "see", draw_and_end)
    member("ann")
    said = run(cluster, "group", "show", group, "--live")
    assert (said.code, said.err) == (0, "")
    assert len(drawn_once) == 1
