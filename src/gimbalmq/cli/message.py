"""`gimbalmq message`: send, watch and look up messages.

Decides how a message looks to people and to programs.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import sys
from typing import Any, Final

import click

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.arguments import moment
from gimbalmq.cli.ending import stopped_by_signals
from gimbalmq.cli.output import json_option, nameserver_option, print_json, print_table
from gimbalmq.client.admin import Admin
from gimbalmq.client.options import Start
from gimbalmq.client.producer import Producer
from gimbalmq.errors import ConfigurationError, OffsetError
from gimbalmq.model.message import Message
from gimbalmq.wire.ids import parse_offset_id
from gimbalmq.wire.received import ReceivedMessage

__all__ = ["message", "message_document", "message_line"]

_PRODUCER_GROUP: Final = "gimbalmq-cli"

_GROUP_HELP: Final = """\
Send, watch and look up messages.

\b
Examples:
  gimbalmq message send orders '{"id": 42}' --key 42 --tag paid
  gimbalmq message tail orders
  gimbalmq message show 7F00000100002A9F0000000000000400
"""

_MESSAGE_JSON: Final = """\
\b
JSON, one object per message and line:
  {"topic","broker","queue_id","queue_offset","message_id","offset_message_id",
   "tags","keys","properties","born_at","stored_at","born_host","reconsume_times",
   "body","body_encoding"}
body is the text of the body; body_encoding is then "utf-8". A body that is no text is given in
base64, and body_encoding says so.
"""

_SEND_HELP: Final = """\
Send one message; a BODY of - is read from standard input.

The broker makes the topic if it does not exist, where brokers allow that.

\b
Examples:
  gimbalmq message send orders hello
  gimbalmq message send orders '{"id": 42}' --key 42 --tag paid --property shop=7
  gimbalmq message send orders - < picture.png
  gimbalmq message send orders later --delay-level 3        (10 seconds)

\b
JSON:
  {"status","topic","broker","queue_id","queue_offset","message_id","offset_message_id"}
"""

_TAIL_HELP: Final = f"""\
Print messages of a topic as they come, until Ctrl-C.

This reads beside the topic's consumers: no group is joined and no offset is stored.

\b
Examples:
  gimbalmq message tail orders
  gimbalmq message tail orders --from earliest --no-follow --json
  gimbalmq message tail orders --from 2026-03-01T12:00:00+01:00 --count 10
  gimbalmq message tail orders --tags 'paid || shipped'

{_MESSAGE_JSON}"""

_SHOW_HELP: Final = f"""\
Look up stored messages: by either of their ids, or by key.

ID is a message_id or an offset_message_id, as `message send` prints them. A message_id is looked
for in every topic unless --topic names one. With --key, ID is a key of messages of --topic, and
all that have it are shown.

\b
Examples:
  gimbalmq message show 7F00000100002A9F0000000000000400
  gimbalmq message show 0A000007125B4E1A2B0047B760000000 --topic orders
  gimbalmq message show 42 --topic orders --key

{_MESSAGE_JSON}"""


@click.group(help=_GROUP_HELP)
def message() -> None:
    """Send, watch and look up messages."""


# ---- send ------------------------------------------------------------------------------------


@message.command("send", help=_SEND_HELP)
@click.argument("topic")
@click.argument("body")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be repeated.")
@click.option("--tag", help="A tag that consumers can filter by.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be repeated."
)
@click.option("--sharding-key", help="Messages with equal sharding keys go to the same queue.")
@click.option(
    "--delay-level", type=click.IntRange(1, 18), help="Deliver later: 1 is 1 s, 18 is 2 h."
)
@nameserver_option
@access_option
@json_option
def send_command(
    topic: str,
    body: str,
    nameserver: str | None,
    *,
    keys: tuple[str, ...],
    tag: str | None,
    properties: tuple[str, ...],
    sharding_key: str | None,
    delay_level: int | None,
    as_json: bool,
) -> None:
    """Send one message."""
    outgoing = Message(
        topic,
        sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape"),
        tags=tag,
        keys=keys,
        properties=dict(map(_property, properties)),
        sharding_key=sharding_key,
        delay_level=delay_level,
    )
    with Producer(_PRODUCER_GROUP, nameserver=nameserver, **access_options()) as producer:
        result = producer.send(outgoing)
    document = {
        "status": result.status.name,
        "topic": result.queue.topic,
        "broker": result.queue.broker,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
    }
    if as_json:
        print_json(document)
    else:
        print_table(("", "sent"), list(document.items()))


def _property(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        raise click.BadParameter(f"'{text}': write NAME=VALUE", param_hint="--property")
    return name, value


# ---- tail ------------------------------------------------------------------------------------


@message.command("tail", help=_TAIL_HELP)
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    metavar="WHERE",
    help="latest, earliest, or a time.",
)
@click.option("--tags", default="*", show_default=True, help="Wanted tags, joined by ||.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--follow/--no-follow", default=True, help="Wait for more, or end with the last.")
@nameserver_option
@access_option
@json_option
def tail_command(
    topic: str,
    nameserver: str | None,
    *,
    start: str,
    tags: str,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Print messages of a topic as they come."""
    endless = follow and count is None
    with (
        stopped_by_signals() if endless else contextlib.nullcontext(),
        Admin(nameserver, **access_options()) as admin,
    ):
        found = admin.tail(topic, tags=tags, start_from=_start(start), follow=follow)
        for received in itertools.islice(found, count):
            if as_json:
                print_json(message_document(received))
            else:
                click.echo(message_line(received))


def _start(text: str) -> Start:
    if text == "latest":
        return "last"
    if text == "earliest":
        return "first"
    return moment(text, "--from", words="latest, earliest")


# ---- show ------------------------------------------------------------------------------------


@message.command("show", help=_SHOW_HELP)
@click.argument("which", metavar="ID")
@click.option("--topic", help="The topic to look in.")
@click.option("--key", "by_key", is_flag=True, help="ID is a key; needs --topic.")
@nameserver_option
@access_option
@json_option
def show_command(
    which: str, nameserver: str | None, *, topic: str | None, by_key: bool, as_json: bool
) -> None:
    """Look up stored messages."""
    if by_key and topic is None:
        raise click.UsageError("--key needs --topic: brokers find keys within a topic only")
    if not by_key:
        try:
            parse_offset_id(which)
        except ConfigurationError as error:
            raise click.UsageError(
                f"{error}; to look for a key, add --topic TOPIC --key"
            ) from error
    with Admin(nameserver, **access_options()) as admin:
        if by_key:
            assert topic is not None
            found = admin.messages(topic, which)
            if not found:
                raise OffsetError(f"topic '{topic}' has no message with key '{which}'")
        else:
            found = (admin.message(which, topic=topic),)
    for received in found:
        document = message_document(received)
        if as_json:
            print_json(document)
        else:
            print_table(("", "message"), [(name, _cell(value)) for name, value in document.items()])


def _cell(value: object) -> object:
    match value:
        case dict():
            return "\n".join(f"{name} = {text}" for name, text in value.items()) or None
        case list():
            return " ".join(value) or None
        case _:
            return value


# ---- how a message looks ---------------------------------------------------------------------


def message_document(received: ReceivedMessage) -> dict[str, Any]:
    """A message as JSON shows it."""
    body, encoding = _text(received.body)
    return {
        "topic": received.topic,
        "broker": received.broker,
        "queue_id": received.queue_id,
        "queue_offset": received.queue_offset,
        "message_id": received.message_id,
        "offset_message_id": received.offset_message_id,
        "tags": received.tags,
        "keys": list(received.keys),
        "properties": received.properties,
        "born_at": received.born_at.isoformat(timespec="milliseconds"),
        "stored_at": received.stored_at.isoformat(timespec="milliseconds"),
        "born_host": received.born_host,
        "reconsume_times": received.reconsume_times,
        "body": body,
        "body_encoding": encoding,
    }


def _text(body: bytes) -> tuple[str, str]:
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def message_line(received: ReceivedMessage) -> str:
    """A message on one line, for people."""
    body, encoding = _text(received.body)
    if encoding == "base64":
        body = f"base64 {body}"  # or it would be taken for the text
    # A body must not be able to move the cursor or to look like the next message.
    shown = "".join(one if one.isprintable() else repr(one)[1:-1] for one in body)
    at = received.stored_at.astimezone().isoformat(sep=" ", timespec="milliseconds")
    labels = " ".join(filter(None, (received.tags, *received.keys)))
    place = f"{received.queue.path}@{received.queue_offset}"
    return "  ".join(filter(None, (at, place, labels and f"[{labels}]", shown)))
