from __future__ import annotations

import pytest

RULES = """
[milestones]
resolved = [{resolved}]

[[section]]
id = "B1.1"
title = "AVG"
rules = [
  {{ id = "B1.1a", milestone = "M1", text = "Pages are contiguous." }},
  {{ id = "B1.1b", milestone = "M2", text = "A | in text.", deviation = "not yet" }},
  {{ id = "B1.1c", milestone = "M1", text = "Ours.", differs = "Java does less." }},
]

[[section]]
id = "B10"
title = "Known pitfalls"
rules = [
  {{ id = "B10.1", milestone = "M3", text = "Views agree." }},
  {{ id = "B10.19a", milestone = "M3", text = "Reconnecting backs off." }},
  {{ id = "B10.20", milestone = "M3", text = "Not ours.", deviation = "Java's" }},
]
"""


@pytest.fixture
def repository(tmp_path):
    """A repository with three rules, one test, and the milestones named as resolved."""

    def make(test="", resolved=""):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "tests" / "core").mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / "conformance.toml").write_text(RULES.format(resolved=resolved))
        (tmp_path / "tests" / "core" / "test_avg.py").write_text(test)
        return tmp_path

    return make


def run(tool, root, *arguments):
    return tool.main([*arguments, "--root", str(root)])


def claims(tool, root):
    return [(marker.rule, marker.test) for marker in tool.markers(root)]


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("@pytest.mark.rule('B1.1a')\ndef test_x(): ...", "::test_x"),
        ("@mark.rule('B1.1a')\nasync def test_x(): ...", "::test_x"),
        ("class TestX:\n  @pytest.mark.rule('B1.1a')\n  def test_y(self): ...", "::TestX::test_y"),
        ("@pytest.mark.rule('B1.1a')\nclass TestX: ...", "::TestX"),
        ("pytestmark = [pytest.mark.rule('B1.1a')]", ""),
        (
            "@pytest.mark.parametrize('x', [pytest.param(1, marks=mark.rule('B1.1a'))])\ndef test_x(x): ...",
            "::test_x",
        ),
    ],
    ids=["function", "imported mark", "method", "class", "module", "parameter"],
)
def test_a_marker_belongs_to_the_definition_it_stands_at(tool, repository, source, test):
    root = repository(source)
    assert claims(tool, root) == [("B1.1a", f"tests/core/test_avg.py{test}")]


def test_a_marker_names_several_rules(tool, repository):
    root = repository("@pytest.mark.rule('B1.1a', 'B1.1c')\ndef test_x(): ...")
    assert [rule for rule, _ in claims(tool, root)] == ["B1.1a", "B1.1c"]


def test_a_computed_rule_id_is_refused_with_its_place(tool, repository, capsys):
    root = repository("\n@pytest.mark.rule(NAME)\ndef test_x(): ...")
    assert run(tool, root, "--check") == 2
    assert "test_avg.py::test_x, line 2" in capsys.readouterr().err


def test_an_unknown_rule_fails_the_check_whatever_is_resolved(tool, repository, capsys):
    root = repository("@pytest.mark.rule('B9.9z')\ndef test_x(): ...")
    run(tool, root, "--write")
    assert run(tool, root, "--check") == 1
    assert "no rule B9.9z" in capsys.readouterr().err


def test_an_unproven_rule_fails_only_once_its_milestone_is_resolved(tool, repository, capsys):
    root = repository("@pytest.mark.rule('B1.1a')\ndef test_x(): ...")
    assert run(tool, root, "--write") == 0
    assert run(tool, root, "--check") == 0
    repository("@pytest.mark.rule('B1.1a')\ndef test_x(): ...", resolved='"M1", "M2"')
    run(tool, root, "--write")
    assert run(tool, root, "--check") == 1
    problems = capsys.readouterr().err
    assert "B1.1c" in problems, "to differ from Java is no excuse for having no test"
    assert "B1.1b" not in problems, "a stated deviation stands in place of a test"


def test_a_pitfall_needs_a_test_that_is_named_after_its_number(tool, repository, capsys):
    source = "@pytest.mark.rule('{}')\ndef {}(): ...\n"
    named = [("B10.1", "test_pitfall_1_views"), ("B10.19a", "test_pitfall_19a_storms")]
    root = repository("".join(source.format(*one) for one in named), resolved='"M3"')
    run(tool, root, "--write")
    assert run(tool, root, "--check") == 0
    # Neither the number of another nor the name without the mark will do.
    other = [("B10.1", "test_pitfall_19a_views"), ("B10.19a", "test_storms")]
    repository("".join(source.format(*one) for one in other), resolved='"M3"')
    run(tool, root, "--write")
    assert run(tool, root, "--check") == 1
    problems = capsys.readouterr().err
    assert "rule B10.1: none of its tests is named test_pitfall_1_" in problems
    assert "rule B10.19a: none of its tests is named test_pitfall_19a_" in problems
    assert "B10.20" not in problems


def test_a_marker_of_a_whole_section_proves_none_of_its_rules(tool, repository, capsys):
    root = repository("@pytest.mark.rule('B1.1')\ndef test_x(): ...", resolved='"M1"')
    assert run(tool, root, "--write") == 1
    assert "B1.1a" in capsys.readouterr().err
    assert "section as a whole: `tests/core" in (root / "docs" / "conformance.md").read_text()


def test_a_stale_document_fails_the_check(tool, repository, capsys):
    root = repository("@pytest.mark.rule('B1.1a')\ndef test_x(): ...")
    run(tool, root, "--write")
    repository("@pytest.mark.rule('B1.1a')\ndef test_renamed(): ...")
    assert run(tool, root, "--check") == 1
    assert "make conformance" in capsys.readouterr().err


def test_the_document_counts_and_lists_every_rule(tool, repository):
    root = repository("@pytest.mark.rule('B1.1a')\ndef test_x(): ...")
    run(tool, root, "--write")
    text = (root / "docs" / "conformance.md").read_text()
    assert "| M1 | 2 | 1 | 0 | 1 |" in text
    assert "| M2 | 1 | 0 | 1 | 0 |" in text
    assert "| B1.1a | M1 | Pages are contiguous. | `tests/core/test_avg.py::test_x` |" in text
    assert r"| B1.1b | M2 | A \| in text. | Deviation: not yet |" in text
    assert "| B1.1c | M1 | Ours. *Java does less.* | open |" in text


def test_open_lists_what_is_left_of_a_milestone(tool, repository, capsys):
    root = repository("@pytest.mark.rule('B1.1a')\ndef test_x(): ...")
    assert run(tool, root, "--open", "M1") == 0
    assert capsys.readouterr().out == "B1.1c  Ours.\n"


def test_coarse_lists_claims_that_name_a_whole_section(tool, repository, capsys):
    root = repository("@pytest.mark.rule('B1.1', 'B1.1a')\ndef test_x(): ...")
    assert run(tool, root, "--coarse") == 0
    assert capsys.readouterr().out == "B1.1  tests/core/test_avg.py::test_x\n"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"B1.1c"', '"B1.1a"', "given twice: B1.1a"),
        ('"B1.1c"', '"B1.2"', "not an id of section B1.1"),
        ('"M2"', '"M9"', "unknown milestone M9"),
        ("[]", '["M0"]', "unknown M0"),
        ('"Ours."', '""', "no text"),
    ],
)
def test_mistakes_in_the_rules_are_named(tool, repository, capsys, old, new, complaint):
    root = repository()
    rules = root / "docs" / "conformance.toml"
    rules.write_text(rules.read_text().replace(old, new))
    assert run(tool, root, "--check") == 2
    assert complaint in capsys.readouterr().err
