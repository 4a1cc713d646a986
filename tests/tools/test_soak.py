from __future__ import annotations

import json

import pytest


@pytest.fixture
def repository(tmp_path):
    """A folder that is a repository as far as pytest is concerned."""

    def make(source):
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = soak\n")
        (tmp_path / "test_inner.py").write_text("import pytest\n" + source)
        return tmp_path

    return make


def test_without_soak_tests_it_says_so_and_writes_nothing(tool, repository, capsys):
    root = repository("def test_ordinary(): pass")
    assert tool.run(root, root / "soak.json", []) == 0
    assert "no soak tests" in capsys.readouterr().out
    assert not (root / "soak.json").exists()


def test_a_campaign_is_kept_with_commit_machine_and_its_figures(tool, repository):
    root = repository(
        "@pytest.mark.soak\n"
        "def test_campaign(record_property): record_property('seeds', 10000)\n"
        "def test_ordinary(): assert False\n"
    )
    assert tool.run(root, root / "results" / "soak.json", []) == 0
    kept = json.loads((root / "results" / "soak.json").read_text())
    assert kept["commit"]
    assert kept["machine"]["cores"] >= 1
    (campaign,) = kept["campaigns"]
    assert campaign["name"] == "test_inner.test_campaign"
    assert campaign["outcome"] == "passed"
    assert campaign["figures"] == {"seeds": "10000"}


def test_a_single_campaign_replaces_only_itself(tool, repository):
    root = repository(
        "import os\n"
        "@pytest.mark.soak\n"
        "def test_long(record_property): record_property('run', os.environ['RUN'])\n"
        "@pytest.mark.soak\n"
        "def test_longer(record_property): record_property('run', os.environ['RUN'])\n"
    )

    def figures(*arguments):
        assert tool.run(root, root / "soak.json", list(arguments)) == 0
        kept = json.loads((root / "soak.json").read_text())
        assert all(one["commit"] and one["ended"] for one in kept["campaigns"])
        return {one["name"].split(".")[-1]: one["figures"]["run"] for one in kept["campaigns"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUN", "1")
        assert figures() == {"test_long": "1", "test_longer": "1"}
        patch.setenv("RUN", "2")
        assert figures("-k", "longer") == {"test_long": "1", "test_longer": "2"}
        patch.setenv("RUN", "3")
        assert figures() == {"test_long": "3", "test_longer": "3"}


def test_a_failed_campaign_is_kept_too_and_fails_the_command(tool, repository):
    root = repository("@pytest.mark.soak\ndef test_campaign(): assert False\n")
    assert tool.run(root, root / "soak.json", []) == 1
    kept = json.loads((root / "soak.json").read_text())
    assert [campaign["outcome"] for campaign in kept["campaigns"]] == ["failure"]
