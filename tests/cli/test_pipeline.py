from __future__ import annotations

import json
import subprocess
import sys

import pytest


def gimbalmq(*arguments):
    command = [sys.executable, "-c", "from gimbalmq.cli.main import main; main()", "pipeline"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_the_list_names_every_pipeline_with_its_options():
    listed = {one["name"]: one for one in json.loads(gimbalmq("list", "--json").stdout)}
    assert list(listed) == ["archive", "transform", "load-profile", "group-health", "replay"]
    path = next(o for o in listed["archive"]["options"] if o["name"] == "path")
    assert path == {"name": "path", "required": True, "default": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "archiv"], "there is no pipeline 'archiv': did you mean 'archive'?"),
        (["run", "archive", "--option", "topic"], "--option topic: write it as name=value"),
        (["run", "archive", "--option", "topic=t"], "option 'path' is missing"),
        (["run", "replay", "--option", "rate=x"], "option 'rate' is 'x'"),
        (
            ["run", "replay", "--access-key", "shop"],
            "option 'accessKey' is given without 'secretKey'",
        ),
        (["run", "replay", "--namespace", "a%b"], "option 'namespace' is 'a%b'"),
    ],
)
def test_wrong_use_is_one_sentence_before_spark_starts(arguments, words):
    done = gimbalmq(*arguments, "--nameserver", "127.0.0.1:9876")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_project_is_written_once(tmp_path):
    folder = tmp_path / "tables"
    arguments = ["init", str(folder), "--topic", "orders", "--nameserver", "127.0.0.1:9876"]
    done = gimbalmq(*arguments, "--namespace", "tenant")
    assert done.returncode == 0, done.stderr
    spec = (folder / "spark-pipeline.yml").read_text()
    assert 'spark.gimbalmq.topic: "orders"' in spec
    assert 'spark.gimbalmq.namespace: "tenant"' in spec
    assert (folder / "transformations" / "messages.py").is_file()
    again = gimbalmq(*arguments)
    assert again.returncode == 2
    assert "exists already" in again.stderr
