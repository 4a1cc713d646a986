"""Keeping the history of a group: callbacks for `on_rebalance` that write to a file or a topic.

    consumer = PushConsumer("billing", client_id="till-1", events="rebalances.jsonl")

does what this does for consumers of every kind:

    log = EventLog("rebalances.jsonl", consumer.client_id)
    consumer.on_rebalance(log)
    consumer.on_moved(log)  # how long each queue paused; PullConsumer has none, its user pulls

`gimbalmq group history` reads both kinds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from gimbalmq.client.admin import Admin
from gimbalmq.client.consumer_trace import trace_settings
from gimbalmq.client.options import Start
from gimbalmq.client.outbound import SenderSettings
from gimbalmq.client.producer import Producer
from gimbalmq.core.consumer.effects import RebalanceReport
from gimbalmq.core.history import RebalanceEvent, decode_event, encode_event, event_of
from gimbalmq.errors import ConfigurationError, ProtocolError
from gimbalmq.model.message import Message
from gimbalmq.wire.names import is_topic

__all__ = [
    "EVENTS_TOPIC",
    "EventLog",
    "EventTopic",
    "event_message",
    "event_place",
    "event_settings",
    "read_log",
    "read_topic",
]

#: Where members of all groups may tell of their rebalances.
EVENTS_TOPIC: Final = "GIMBALMQ_EVENTS"
_TAG: Final = "rebalance"


class EventLog:
    """Appends each rebalance of a member to a file, one JSON object per line.

    As a callback of `on_moved`, too, it adds a line with the pauses when all queues have moved.
    Members of one machine may share the file: a line is written in one go.
    """

    def __init__(self, path: str | Path, client_id: str) -> None:
        self.path = Path(path)
        self._client_id = client_id

    def __call__(self, report: RebalanceReport) -> None:
        """Write one event; usable as a rebalance callback."""
        event = event_of(report, self._client_id, time.time_ns() // 1_000_000)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, encode_event(event) + b"\n")
        finally:
            os.close(handle)


class EventTopic:
    """Sends each rebalance of a member to a topic, with the group as key.

    The producer is the caller's: it must be started, and outlive the consumer.
    """

    def __init__(self, producer: Producer, client_id: str, topic: str = EVENTS_TOPIC) -> None:
        self._producer = producer
        self._client_id = client_id
        self._topic = topic

    def __call__(self, report: RebalanceReport) -> None:
        """Send one event; usable as a rebalance callback."""
        self._producer.send(event_message(report, self._client_id, self._topic))


def event_message(report: RebalanceReport, client_id: str, topic: str) -> Message:
    """The message that tells a topic of a rebalance."""
    event = event_of(report, client_id, time.time_ns() // 1_000_000)
    return Message(topic, encode_event(event), tags=_TAG, keys=[event.group])


def event_place(events: str | Path) -> Path | str:
    """What the option `events` means: the file, or the topic.

    A text is a topic if it can be one; names of files have a dot or a slash, which topics lack.
    """
    if not str(events):
        raise ConfigurationError("events is empty: give a file, or the name of a topic")
    return events if isinstance(events, str) and is_topic(events) else Path(events)


def event_settings(group: str, namespace: str | None) -> SenderSettings:
    """How a consumer sends its events."""
    settings = trace_settings(group, "")
    return msgspec.structs.replace(settings, namespace=namespace, trace_topic=None)


def read_log(path: str | Path, group: str, since: datetime | None = None) -> list[RebalanceEvent]:
    """The events of a group in a file.

    Raises:
        ConfigurationError: the file cannot be read.
        ProtocolError: a line is no event; a last line that is still being written is left out.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the event log cannot be read: {error}") from error
    lines = data.split(b"\n")
    # What stands behind the last line end is empty, or not whole yet.
    return list(_chosen((decode_event(line) for line in lines[:-1] if line), group, since))


def read_topic(
    admin: Admin, group: str, topic: str = EVENTS_TOPIC, since: datetime | None = None
) -> list[RebalanceEvent]:
    """The events of a group in a topic; messages that are no events are an error.

    Raises:
        TopicNotFoundError: nobody has sent an event yet.
        ProtocolError: the topic holds something else.
    """
    start: Start = "first" if since is None else since
    found = admin.tail(topic, tags=_TAG, start_from=start, follow=False)
    events = []
    for message in found:
        try:
            events.append(decode_event(message.body))
        except ProtocolError as error:
            place = f"{message.queue.path}@{message.queue_offset}"
            raise ProtocolError(f"{place} is {error}") from error
    return list(_chosen(events, group, since))


def _chosen(
    events: Iterable[RebalanceEvent], group: str, since: datetime | None
) -> Iterator[RebalanceEvent]:
    start_ms = 0 if since is None else int(since.timestamp() * 1000)
    return (one for one in events if one.group == group and one.at_ms >= start_ms)
