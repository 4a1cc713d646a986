"""`group-health`: lag, fairness, moves and pauses of a consumer group over time.

Looks at the group again and again, appends what it sees to a file with one JSON object per queue
and look, and reports on the whole file: runs add up. A move is a queue whose owner changed between
two looks; a pause is time in which a queue had messages waiting and its committed offset stood.

Where members keep events of their rebalances, these are reported, too (`rebalances`): every move
and how long it took, also those between two looks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gimbalmq.client.admin import Admin, QueueOffsets
from gimbalmq.client.events import EVENTS_TOPIC, event_place, read_log, read_topic
from gimbalmq.core.history import RebalanceEvent
from gimbalmq.errors import ConfigurationError, TopicNotFoundError
from gimbalmq.model.queue import MessageQueue
from gimbalmq.spark.pipelines.rebalances import summarize
from gimbalmq.spark.pipelines.report import Report, bar
from gimbalmq.spark.pipelines.settings import PipelineOptions, client_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Look", "Options", "run", "take_looks"]

_NO_EVENTS: Final = "none"

_SCHEMA: Final = (
    "at_ms long, `group` string, topic string, broker string, queue_id int, owner string, "
    "members int, committed long, maximum long"
)


class Options(PipelineOptions, frozen=True, kw_only=True, rename="camel"):
    """Options of `group-health`."""

    group: str
    #: The file that looks are appended to.
    history: str
    #: How many looks to take now, and how far apart; 0 only reports.
    looks: int = 10
    every_s: float = 5.0
    #: Where members keep events of their rebalances: a topic or a file; `none` for nowhere.
    events: str = EVENTS_TOPIC
    #: Events are added up by so many seconds.
    period_s: float = 60.0


class Look(msgspec.Struct, frozen=True):
    """One queue of a group at one moment."""

    at_ms: int
    group: str
    topic: str
    broker: str
    queue_id: int
    owner: str | None
    members: int
    committed: int | None
    maximum: int


def run(spark: SparkSession, options: Options, tell: Callable[[str], None]) -> Report:
    """Look, then report on everything seen so far."""
    if options.looks < 0 or options.every_s <= 0 or options.period_s < 1:
        raise ConfigurationError(
            "option 'looks' starts at 0, 'everyS' is above 0, and 'periodS' starts at 1"
        )
    with Admin(options.nameserver, **client_options(options)) as admin:
        _collect(admin, options, tell)
        told = _events(admin, options, tell)
    if not Path(options.history).is_file():
        raise ConfigurationError(
            f"option 'history': there is no file {options.history}, and no look was taken that "
            "found a queue of the group"
        )
    from pyspark.sql import functions as f

    seen = spark.read.schema(_SCHEMA).json(options.history)
    report = _report(options.group, seen.filter(f.col("group") == options.group))
    return report if told is None else _with_rebalances(report, told, options.period_s)


def _collect(admin: Admin, options: Options, tell: Callable[[str], None]) -> None:
    for number in range(options.looks):
        if number:
            time.sleep(options.every_s)
        looks = take_looks(admin, options.group, time.time_ns() // 1_000_000)
        with Path(options.history).open("ab") as file:
            file.writelines(msgspec.json.encode(look) + b"\n" for look in looks)
        lag = sum(max(0, look.maximum - (look.committed or 0)) for look in looks)
        owned = sum(look.owner is not None for look in looks)
        tell(
            f"look {number + 1} of {options.looks}: {looks[0].members if looks else 0} "
            f"members, {owned} of {len(looks)} queues owned, lag {lag:,}"
        )


def _events(
    admin: Admin, options: Options, tell: Callable[[str], None]
) -> list[RebalanceEvent] | None:
    """What members told of their rebalances; None when nobody keeps such events."""
    if options.events == _NO_EVENTS:
        return None
    place = event_place(options.events)
    if isinstance(place, Path):
        found = read_log(place, options.group)
    else:
        try:
            found = read_topic(admin, options.group, place)
        except TopicNotFoundError:
            if place != EVENTS_TOPIC:
                raise
            tell(f"no member keeps events (there is no topic {place}): moves are those seen")
            return None
    told = sum(event.decides for event in found)
    tell(f"{told} rebalances told by members in {options.events}")
    return found


def _with_rebalances(report: Report, events: Sequence[RebalanceEvent], period_s: float) -> Report:
    """The report with what the events say beside what was seen."""
    found = summarize(events, period_s=period_s)
    facts = {
        "rebalances": found.events,
        "rebalance_moves": found.moves,
        "rebalance_pause_s": found.pause_s,
        "rebalance_pause_s_max": found.pause_s_max,
    }
    tables = {
        "rebalances": [msgspec.structs.asdict(one) for one in found.periods],
        "rebalanced_queues": [msgspec.structs.asdict(one) for one in found.queues],
    }
    return Report(
        report.pipeline, {**report.facts, **facts}, {**report.tables, **tables}, report.picture
    )


def take_looks(admin: Admin, group: str, at_ms: int) -> list[Look]:
    """Every queue of a group now: of the topics that members subscribe to, or that it has read.

    Raises:
        ConfigurationError: nobody knows the group.
    """
    view = admin.group(group)
    if not view.members and group not in admin.groups(internal=True):
        raise ConfigurationError(
            f"option 'group': no broker knows a group '{group}': correct the name, or start it"
        )
    owners = {
        queue: member for member, share in admin.assignments(group).items() for queue in share
    }
    # Also what was read by a query that takes a whole topic, which is no member.
    topics = view.topics | {queue.topic for queue in admin.consume_stats(group).queues}
    found: dict[MessageQueue, QueueOffsets] = {}
    for topic in sorted(topics):
        if not topic.startswith("%"):
            with contextlib.suppress(TopicNotFoundError):  # a topic that is still to be made
                found |= admin.offsets(group, topic)
    return [
        Look(
            at_ms,
            group,
            queue.topic,
            queue.broker,
            queue.queue_id,
            owners.get(queue),
            len(view.members),
            offsets.committed,
            offsets.maximum,
        )
        for queue, offsets in sorted(found.items())
    ]


def _report(group: str, seen: DataFrame) -> Report:
    times = _over_time(seen)
    queues = _by_queue(seen)
    facts = {
        "group": group,
        "looks": len(times),
        "lag": times[-1]["lag"] if times else 0,
        "lag_max": max((row["lag"] for row in times), default=0),
        "moves": sum(row["moves"] for row in queues),
        "paused_s": round(sum(row["paused_s"] for row in queues), 1),
        "fairness_min": min((row["fairness"] for row in times), default=1.0),
    }
    return Report("group-health", facts, {"looks": times, "queues": queues}, _picture(times))


def _over_time(seen: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    lag = f.greatest(f.lit(0), f.col("maximum") - f.coalesce("committed", f.lit(0)))
    shares = seen.groupBy("at_ms", "owner").agg(
        f.count("*").alias("share"), f.sum(lag).alias("lag"), f.max("members").alias("members")
    )
    owned = f.when(f.col("owner").isNotNull(), f.col("share")).otherwise(0)
    rows = (
        shares.groupBy("at_ms")
        .agg(
            f.sum("lag").alias("lag"),
            f.max("members").alias("members"),
            f.sum(owned).alias("owned"),
            f.sum("share").alias("queues"),
            f.sum(owned * owned).alias("squares"),
        )
        .orderBy("at_ms")
        .collect()
    )
    return [
        {
            "at_ms": row["at_ms"],
            "members": row["members"],
            "owned": row["owned"],
            "queues": row["queues"],
            "lag": row["lag"],
            # Jain's index over all members, also those with nothing.
            "fairness": (
                round(row["owned"] ** 2 / (row["members"] * row["squares"]), 4)
                if row["squares"] and row["members"]
                else 1.0
            ),
        }
        for row in rows
    ]


def _by_queue(seen: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    path = ("topic", "broker", "queue_id")
    window = Window.partitionBy(*path).orderBy("at_ms")
    before = {name: f.lag(name).over(window) for name in ("owner", "committed", "maximum", "at_ms")}
    stood = (before["committed"] == f.col("committed")) & (before["maximum"] > f.col("committed"))
    steps = seen.select(
        *path,
        (before["owner"].isNotNull() & (before["owner"] != f.col("owner"))).alias("moved"),
        f.when(stood, f.col("at_ms") - before["at_ms"]).otherwise(0).alias("paused_ms"),
        (f.col("maximum") - f.coalesce("committed", f.lit(0))).alias("lag"),
    )
    rows = (
        steps.groupBy(*path)
        .agg(
            f.sum(f.coalesce(f.col("moved"), f.lit(False)).cast("int")).alias("moves"),
            f.sum("paused_ms").alias("paused_ms"),
            f.max("lag").alias("lag_max"),
        )
        .orderBy(*path)
        .collect()
    )
    return [
        {
            "queue": f"{row['topic']}/{row['broker']}/{row['queue_id']}",
            "moves": row["moves"],
            "paused_s": row["paused_ms"] / 1000,
            "lag_max": row["lag_max"],
        }
        for row in rows
    ]


def _picture(times: Iterable[dict[str, Any]]) -> str:
    listed = list(times)[-30:]
    most = max((row["lag"] for row in listed), default=0)
    return "\n".join(
        f"{time.strftime('%H:%M:%S', time.gmtime(row['at_ms'] / 1000))}Z  "
        f"{bar(row['lag'], most, width=30):<30}  lag {row['lag']:,}"
        for row in listed
    )
