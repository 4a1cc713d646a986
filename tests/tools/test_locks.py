from __future__ import annotations

from pathlib import Path

import pytest

PROJECT = """
[project]
requires-python = ">=3.11"
dependencies = ["msgspec"]
[project.optional-dependencies]
cli = ["click"]
[dependency-groups]
dev = ["ruff"]
[tool.ruff]
line-length = 100
"""


@pytest.fixture
def repository(tool, tmp_path):
    """A repository whose locks carry the right fingerprints."""
    folder = tmp_path / "requirements"
    folder.mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for name in ("bootstrap.in", "docs.in", "spark42.in"):
        (folder / name).write_text("# why\nsomething\n")
    for lock in tool.LOCKS:
        mark = tool.fingerprint(lock, tmp_path)
        (folder / lock.name).write_text(f"# title\n# inputs: sha256:{mark}\nx==1\n")
    return tmp_path


def test_locks_of_this_repository_are_up_to_date(tool):
    assert tool.stale(Path(__file__).parents[2]) == []


def test_fresh_locks_pass(tool, repository):
    assert tool.main(["--check", "--root", str(repository)]) == 0


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("msgspec", "msgspec>=1", ["dev.txt", "spark42.txt"]),
        ("click", "click>=9", ["dev.txt", "spark42.txt"]),
        ("ruff", "ruff>=9", ["dev.txt", "spark42.txt"]),
        (">=3.11", ">=3.12", ["dev.txt", "spark42.txt"]),
        ("line-length = 100", "line-length = 90", []),
    ],
    ids=["dependency", "extra", "group", "python", "a linter option does not matter"],
)
def test_a_changed_project_makes_its_locks_stale(tool, repository, old, new, stale):
    project = repository / "pyproject.toml"
    # Only the first: "ruff" is also the name of a table.
    project.write_text(project.read_text().replace(old, new, 1))
    assert tool.stale(repository) == stale


def test_a_changed_constraint_makes_its_lock_stale_and_a_comment_does_not(tool, repository):
    constraint = repository / "requirements" / "spark42.in"
    constraint.write_text("# another reason\nsomething\n")
    assert tool.stale(repository) == []
    constraint.write_text("something==2\n")
    assert tool.stale(repository) == ["spark42.txt"]


def test_a_lock_without_fingerprint_or_missing_is_stale(tool, repository, capsys):
    (repository / "requirements" / "dev.txt").write_text("x==1\n")
    (repository / "requirements" / "docs.txt").unlink()
    assert tool.main(["--check", "--root", str(repository)]) == 1
    assert "requirements/dev.txt is older than its inputs" in capsys.readouterr().err
    assert tool.stale(repository) == ["dev.txt", "docs.txt"]
