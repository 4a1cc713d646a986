"""`gimbalmq pipeline`: list, run and begin data pipelines on Spark.

Decides how options come in and how reports look; what a pipeline does is in `spark.pipelines`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from gimbalmq.cli.access import access_option, access_options
from gimbalmq.cli.output import json_option, nameserver_option, notice, print_json, print_table
from gimbalmq.errors import GimbalError
from gimbalmq.transport.reach import TlsFiles

__all__ = ["pipeline"]

_GROUP_HELP: Final = """\
Data pipelines on Spark: archive, transform, profile, watch and replay.

Each is a small PySpark program with options. It runs on this machine with the Spark of the extra
`spark`, or on a cluster with --master.

\b
Examples:
  gimbalmq pipeline list
  gimbalmq pipeline run archive --option topic=orders --option path=archive
  gimbalmq pipeline run replay --option deadLettersOf=shop --option dryRun=true
"""

_LIST_HELP: Final = """\
List the pipelines with their options; a star marks those that must be given.

\b
Examples:
  gimbalmq pipeline list
  gimbalmq pipeline list --json

\b
JSON: [{"name","summary","options":[{"name","required","default"}]}]
"""

_RUN_HELP: Final = """\
Run a pipeline.

Progress goes to stderr, the report to stdout when it is done. Ctrl-C ends a pipeline that goes on
for ever, with its report.

\b
Examples:
  gimbalmq pipeline run archive --option topic=orders --option path=archive
  gimbalmq pipeline run transform --option topic=orders --option to=paid \\
      --option checkpoint=state --option sql="select body, keys from messages where tags = 'paid'"
  gimbalmq pipeline run load-profile --option topic=orders --option html=load.html

\b
JSON: {"pipeline","facts":{...},"tables":{...}}
"""

_INIT_HELP: Final = """\
Begin a project for Spark Declarative Pipelines in a new folder.

It reads a topic into tables and runs as it is: `spark-pipelines run` in the folder. Keys and TLS
come from the variables ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY, ROCKETMQ_TLS and so on, as for
every command: no secret is written down.

\b
Example:
  gimbalmq pipeline init orders-tables --topic orders
"""


@click.group(help=_GROUP_HELP)
def pipeline() -> None:
    """Data pipelines on Spark."""


@pipeline.command("list", help=_LIST_HELP)
@json_option
def list_command(*, as_json: bool) -> None:
    """List the pipelines."""
    from gimbalmq.spark.pipelines import PIPELINES

    listed: list[dict[str, Any]] = [
        {
            "name": info.name,
            "summary": info.summary,
            "options": [
                {
                    "name": field.encode_name,
                    "required": field.required,
                    "default": None if field.required else field.default,
                }
                for field in msgspec.structs.fields(info.load().Options)
            ],
        }
        for info in PIPELINES.values()
    ]
    if as_json:
        print_json(listed)
        return
    print_table(
        ("pipeline", "what it does", "options"),
        [
            (
                one["name"],
                one["summary"],
                " ".join(o["name"] + ("*" if o["required"] else "") for o in one["options"]),
            )
            for one in listed
        ],
    )


@pipeline.command("run", help=_RUN_HELP)
@click.argument("name")
@click.option("--option", "pairs", multiple=True, metavar="NAME=VALUE", help="An option of it.")
@click.option("--master", help="Spark's master. [default: this machine]")
@click.option("--cores", type=click.IntRange(1), help="Cores of this machine. [default: all]")
@nameserver_option
@access_option
@json_option
def run_command(
    name: str,
    pairs: tuple[str, ...],
    master: str | None,
    cores: int | None,
    nameserver: str | None,
    *,
    as_json: bool,
) -> None:
    """Run a pipeline."""
    from gimbalmq.spark.pipelines import find_pipeline
    from gimbalmq.spark.pipelines.settings import client_options, parse_options, parse_pairs
    from gimbalmq.transport.address import parse_nameservers

    module = find_pipeline(name).load()
    given = _access_texts() | parse_pairs(pairs)
    if nameserver is not None:
        given = {"nameserver": nameserver} | given
    options = parse_options(module.Options, given)
    # Known before Spark takes its seconds to start.
    parse_nameservers(options.nameserver)
    client_options(options)

    from pyspark.errors import PySparkException

    from gimbalmq.spark.failures import sentence_of
    from gimbalmq.spark.session import local_session

    notice(f"{name}: starting Spark")
    config = {} if master is None else {"spark.master": master}
    spark = local_session(f"gimbalmq {name}", cores=cores, config=config)
    try:
        report = module.run(spark, options, lambda line: notice(f"{name}: {line}"))
    except PySparkException as error:
        raise GimbalError(f"{name}: {sentence_of(error)}") from error
    finally:
        spark.stop()
    if as_json:
        print_json({"pipeline": report.pipeline, "facts": report.facts, "tables": report.tables})
        return
    print_table(("", report.pipeline), list(report.facts.items()))
    if report.picture:
        click.echo(report.picture)
    for title, rows in report.tables.items():
        if rows:
            print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], title=title)


def _access_texts() -> dict[str, str]:
    """Keys, TLS and namespace of the command line as options of a pipeline."""
    given = access_options()
    texts = {
        "accessKey": given.get("access_key"),
        "secretKey": given.get("secret_key"),
        "namespace": given.get("namespace"),
    }
    tls = given.get("tls")
    if isinstance(tls, TlsFiles):
        texts |= {
            "tls": "true",
            "tlsCaFile": tls.ca_file,
            "tlsCertFile": tls.cert_file,
            "tlsKeyFile": tls.key_file,
        }
    return {name: text for name, text in texts.items() if text is not None}


@pipeline.command("init", help=_INIT_HELP)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--namespace", help="Prefix of the topic that is added and taken off again.")
@nameserver_option
def init_command(
    folder: Path, topic: str, nameserver: str | None, *, namespace: str | None
) -> None:
    """Begin a project."""
    from gimbalmq.spark.pipelines.project import write_project
    from gimbalmq.transport.address import parse_nameservers

    servers = ";".join(parse_nameservers(nameserver))
    for file in write_project(folder, nameserver=servers, topic=topic, namespace=namespace):
        click.echo(str(file))
    notice(f"run it: cd {folder} && spark-pipelines run")
