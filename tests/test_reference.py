"""The reference pages, held against the code: what is missing, gone or has another default fails."""

from __future__ import annotations

import importlib.util
import inspect
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

import gimbalmq
from gimbalmq import errors
from gimbalmq.broker import Account, BrokerSettings, EmbeddedCluster
from gimbalmq.broker.store import StoreOptions
from gimbalmq.client.access import AccessOptions
from gimbalmq.client.batching import Batching
from gimbalmq.client.options import (
    SETTINGS,
    ClientTuning,
    ConsumerTuning,
    LitePullTuning,
    PushTuning,
)
from gimbalmq.core.consumer.settings import ConsumerSettings
from gimbalmq.testing.jars import VERSIONS
from gimbalmq.wire.trace import TRACE_TOPIC

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
#: Defaults that a page says in words, because their text in Python would not help.
IN_WORDS = {"delay_levels_ms", "retention", "clock", "flush"}
REQUIRED = "required"


def page(name):
    return (REFERENCE / name).read_text("utf-8")


def rows(text):
    """The cells of all tables in a text, heads left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    heads = [
        number for number, line in enumerate(lines) if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line)
    ]
    skipped = {*heads, *(number - 1 for number in heads)}
    return [[cell.strip() for cell in row] for n, row in enumerate(cells) if n not in skipped]


def section(text, title):
    """What stands below a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section '{title}'"
    return found[1]


def documented(title):
    """The options of a class on the page, with their defaults."""
    found = {}
    for name, default, meaning in rows(section(page("options.md"), title)):
        assert meaning, f"{title}: {name} has no meaning"
        assert name not in found, f"{title}: {name} is listed twice"
        found[name.strip("`")] = default.strip("`")
    return found


def worded(defaults):
    return {
        name: "in words" if name in IN_WORDS and default != REQUIRED else default
        for name, default in defaults.items()
    }


def from_signature(function):
    parameters = inspect.signature(function).parameters.values()
    return {
        one.name: REQUIRED if one.default is one.empty else repr(one.default)
        for one in parameters
        if one.kind is not one.VAR_KEYWORD
    }


def from_fields(kind):
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = repr(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = repr(field.default_factory())
        else:
            found[field.name] = REQUIRED
    return found


def tuning(kind):
    """What a consumer does when an option of its tuning is not given."""
    known = {
        name: from_fields(setting.home)[setting.field] for name, setting in SETTINGS.items()
    } | {
        "rejoin_grace_s": from_fields(ConsumerSettings)["rejoin_grace_s"],
        "max_reconsume_times": "-1",
        "local_offset_store_dir": "None",
        "events": "None",
        "hung_listener_s": "60.0",
        "parallel_by": "None",
        "enable_trace": "False",
        "trace_topic": repr(TRACE_TOPIC),
    }
    names = kind.__annotations__.keys() - AccessOptions.__annotations__.keys()
    return {name: known[name] for name in names}


CLASSES = {
    "Producer": lambda: from_signature(gimbalmq.Producer) | tuning(ClientTuning),
    "FaultTolerance": lambda: from_fields(gimbalmq.FaultTolerance),
    "Batching": lambda: from_fields(Batching),
    "Message": lambda: from_signature(gimbalmq.Message),
    "PushConsumer": lambda: from_signature(gimbalmq.PushConsumer) | tuning(PushTuning),
    "LitePullConsumer": lambda: from_signature(gimbalmq.LitePullConsumer) | tuning(LitePullTuning),
    "PullConsumer": lambda: from_signature(gimbalmq.PullConsumer) | tuning(ConsumerTuning),
    "Admin": lambda: from_signature(gimbalmq.Admin),
    "EmbeddedCluster": lambda: from_signature(EmbeddedCluster),
    "BrokerSettings": lambda: from_fields(BrokerSettings),
    "StoreOptions": lambda: from_fields(StoreOptions),
    "Account": lambda: from_fields(Account),
    "MemorySeen": lambda: from_signature(gimbalmq.MemorySeen),
    "SqliteSeen": lambda: from_signature(gimbalmq.SqliteSeen),
}


@pytest.mark.parametrize("title", CLASSES)
def test_the_options_of_a_class_are_listed_with_their_defaults(title):
    assert worded(documented(title)) == worded(CLASSES[title]())


def test_the_options_of_every_client_are_listed():
    assert documented("Every client").keys() == AccessOptions.__annotations__.keys()


def test_what_a_push_consumer_does_without_options_is_what_the_page_says():
    consumer = gimbalmq.PushConsumer("billing", nameserver="127.0.0.1:9876")
    listed = documented("PushConsumer")
    assert listed["pull_batch_size"] == str(consumer._pulls.pull_batch_size)
    assert listed["hung_listener_s"] == str(consumer._hung_listener_s)
    assert consumer._pulls.max_reconsume_times == 16
    assert consumer._settings.ordered_reconsume_max is None
    assert consumer._trace_topic is None


@pytest.fixture
def tool():
    """The script that writes pages from the code."""
    path = ROOT / "tools" / "reference.py"
    specification = importlib.util.spec_from_file_location("repository_reference", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["api.md", "cli.md"])
def test_pages_are_what_the_code_says(tool, name):
    assert page(name) == tool.PAGES[name](), "run: python tools/reference.py --write"


def test_pages_that_are_not_up_to_date_are_named_and_written(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    assert tool.main([]) == 1
    assert "cli.md: not up to date" in capsys.readouterr().out
    assert tool.main(["--write"]) == 0
    assert tool.main([]) == 0


def test_the_page_of_names_lists_every_name_and_method(tool):
    text = tool.api_page()
    listed = [row[0].strip("`") for row in rows(section(text, "Everything in gimbalmq"))]
    assert sorted(listed) == sorted(gimbalmq.__all__)
    assert "send(message, *, queue=None" in section(text, "Producer")


def test_every_error_is_listed_below_its_parent_with_what_it_is():
    listed = {name.strip("`"): (parent.strip("`"), what) for name, parent, what in
              rows(section(page("errors.md"), "The tree"))}  # fmt: skip
    kinds = {name: getattr(errors, name) for name in errors.__all__}
    assert listed.keys() == kinds.keys()
    for name, kind in kinds.items():
        parent, meaning = listed[name]
        bases = [base.__name__ for base in kind.__bases__]
        assert parent == ", ".join(bases), name
        assert meaning, name


def spark_table(title):
    return {name.strip("`") for name, *_ in rows(section(page("spark-options.md"), title))}


def test_the_options_of_spark_are_listed():
    options = pytest.importorskip("gimbalmq.spark.option_names", exc_type=ImportError)
    batch, stream = set(options._BATCH_ONLY), set(options._STREAM_ONLY)
    assert spark_table("Batch reads and streams") == set(options._READ) - batch
    assert spark_table("Batch reads only") == batch
    assert spark_table("Streams only") == stream
    assert spark_table("Keys, TLS and namespace") == set(options._ACCESS)


def test_the_defaults_of_spark_are_those_that_the_page_says():
    options = pytest.importorskip("gimbalmq.spark.options", exc_type=ImportError)
    streams = pytest.importorskip("gimbalmq.spark.stream_options", exc_type=ImportError)
    writes = pytest.importorskip("gimbalmq.spark.write_options", exc_type=ImportError)
    given = {"nameserver": "127.0.0.1:9876", "topic": "orders"}
    text = page("spark-options.md")
    read, stream = options.parse_read_options(given), streams.parse_stream_options(given)
    minutes = int(stream.limits.delay_max_s // 60)
    for row in (
        f"| `group` | `{read.pull_group}` | in whose",
        f"| `failOnDataLoss` | `{str(read.fail_on_data_loss).lower()}` |",
        (
            f"| `startingOffsets` | `{read.start.__class__.__name__.lower()}`; "
            f"streams: `{stream.read.start.__class__.__name__.lower()}` |"
        ),
        f"| `endingOffsets` | `{read.end.__class__.__name__.lower()}` |",
        f"| `maxTriggerDelay` | `{minutes}m` |",
        f"| `groupMode` | `{stream.mode}` |",
        f"| `allocation` | `{stream.allocation}` |",
        f"| `maxInFlight` | {writes.parse_write_options(given).in_flight_max} |",
    ):
        assert row in text, row


def test_the_options_of_spark_writes_are_listed():
    written = pytest.importorskip("gimbalmq.spark.write_options", exc_type=ImportError)
    assert spark_table("Writes") == set(written._WRITE)


def test_the_columns_of_spark_are_listed():
    schema = pytest.importorskip("gimbalmq.spark.schema", exc_type=ImportError)
    listed = [name.strip("`") for name, *_ in rows(section(page("spark-options.md"), "Columns"))]
    assert listed == list(schema.COLUMNS)


def test_the_options_of_pipelines_are_listed():
    pipelines = pytest.importorskip("gimbalmq.spark.pipelines", exc_type=ImportError)
    settings = pytest.importorskip("gimbalmq.spark.pipelines.settings", exc_type=ImportError)
    text = section(page("spark-options.md"), "Pipelines")
    listed = {name.strip("`"): re.findall(r"`([^`]+)`", names) for name, names in rows(text)}
    assert listed.keys() == pipelines.PIPELINES.keys()
    shared = settings.option_names(settings.PipelineOptions)
    options = pytest.importorskip("gimbalmq.spark.option_names", exc_type=ImportError)
    assert set(shared) == {"nameserver", *options._ACCESS}
    for name, info in pipelines.PIPELINES.items():
        known = settings.option_names(info.load().Options)
        assert listed[name] == [one for one in known if one not in shared]


def locked(file, package):
    text = (ROOT / "requirements" / file).read_text("utf-8")
    return re.search(rf"^{package}==([\d.]+)", text, re.MULTILINE)[1]


def test_the_compatibility_page_names_what_the_matrix_runs():
    text = page("compatibility.md")
    listed = {row[0]: row[1] for row in rows(section(text, "What the tests run on"))}
    assert listed["Apache RocketMQ, servers and Java clients"] == ", ".join(VERSIONS)
    spark = ", ".join(locked(file, "pyspark") for file in ("dev.txt", "spark42.txt"))
    assert listed["Spark"] == spark
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert listed["Python"] == project["requires-python"].removeprefix(">=")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    # The first version is what tests run on when they are not told otherwise.
    asked = set(re.findall(r"--rocketmq-version=([\d.]+)", makefile))
    assert asked | {VERSIONS[0]} == set(VERSIONS)


def test_every_deliberate_difference_of_the_embedded_broker_is_explained():
    stated = re.findall(r"^\s+- ", BrokerSettings.__doc__, re.MULTILINE)
    text = (ROOT / "docs" / "explanation" / "embedded-cluster.md").read_text("utf-8")
    assert len(rows(section(text, "Deliberate differences"))) == len(stated) == 6


def test_every_page_is_in_the_navigation():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    listed = set(re.findall(r"^([\w/-]+)$", index, re.MULTILINE))
    pages = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    assert listed == pages - {"index"}
