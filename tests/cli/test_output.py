from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json, print_table
from gimbalmq.model.queue import MessageQueue


def test_json_is_one_line_and_nothing_else(capsys):
    print_json({"queue": MessageQueue("t", "a", 1), "text": "Zürich\n"})
    told = capsys.readouterr()
    assert told.out.count("\n") == 1
    assert json.loads(told.out) == {
        "queue": {"topic": "t", "broker": "a", "queue_id": 1},
        "text": "Zürich\n",
    }
    assert told.err == ""


def test_a_table_shows_unknown_values_as_a_dash_and_names_as_they_are(capsys):
    print_table(("name", "lag"), [("[bold]topic", None), ("b", 12)], title="Groups")
    out = capsys.readouterr().out
    assert "Groups" in out
    assert "[bold]topic" in out
    assert "│   - │" in out
    assert "│  12 │" in out


def test_a_notice_does_not_touch_the_output(capsys):
    notice("starting")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "starting\n")


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ([], {}, "None False"),
        ([], {"NAMESRV_ADDR": "a:1;b:2"}, "a:1;b:2 False"),
        (["--nameserver", "c:3", "--json"], {"NAMESRV_ADDR": "a:1"}, "c:3 True"),
    ],
)
def test_the_common_options_are_read(arguments, environ, expected):
    @click.command()
    @nameserver_option
    @json_option
    def show(nameserver: str | None, *, as_json: bool) -> None:
        click.echo(f"{nameserver} {as_json}")

    environment = {"NAMESRV_ADDR": None} | environ
    answer = CliRunner().invoke(show, arguments, env=environment)
    assert answer.output.strip() == expected


def test_a_table_for_a_file_or_pipe_cuts_no_name(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a-very-long-client-id" * 5
    title = "A title that is longer than the table"
    print_table(("a", "b", "c"), [(name, name, 1)], title=title)
    title_line, *lines = capsys.readouterr().out.splitlines()
    assert title_line == title
    assert sum(line.count(name) for line in lines) == 2
    print_table(("a",), [(1,)], title=title)
    assert capsys.readouterr().out.splitlines()[0] == title
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("a", "b", "c"), [(name, name, 1)])
    assert max(map(len, capsys.readouterr().out.splitlines())) == 40
