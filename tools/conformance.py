"""Write docs/conformance.md: every rule of the specification beside the tests that prove it.

The rules stand in docs/conformance.toml; the tests name them with `@pytest.mark.rule("B1.1a")`
on a function, class, module (`pytestmark`) or parameter. Test files are read, never imported.

`--check` fails when
- a marker names a rule that does not exist,
- a rule of a resolved milestone has neither a test nor a stated deviation,
- a pitfall (section B10) has no test that is named after its number,
- docs/conformance.md is not what `--write` would write.

A marker may name a whole section ("B2.6") while its rules have letters ("B2.6a"): the test is
then listed under the section, but proves none of its rules.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = [
    "Marker",
    "Rule",
    "Section",
    "Specification",
    "load",
    "main",
    "markers",
    "problems",
    "render",
]

_MILESTONES: Final = ("M1", "M2", "M3", "M4", "M5")
#: The section of pitfalls: people look for their tests by number.
_PITFALLS: Final = "B10."


@dataclass(frozen=True)
class Rule:
    """One testable sentence.

    `differs` says what Java does instead, where we do better on purpose: our way needs a test.
    `deviation` says why the rule does not hold here, and stands in place of a test.
    """

    id: str
    milestone: str
    text: str
    differs: str = ""
    deviation: str = ""


@dataclass(frozen=True)
class Section:
    """A numbered section of the specification."""

    id: str
    title: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Specification:
    """Everything that docs/conformance.toml says."""

    sections: tuple[Section, ...]
    resolved: frozenset[str] = field(default_factory=frozenset)

    @property
    def rules(self) -> dict[str, Rule]:
        """All rules by id."""
        return {rule.id: rule for section in self.sections for rule in section.rules}

    @property
    def known(self) -> frozenset[str]:
        """Every id that a marker may name."""
        return frozenset(self.rules) | {section.id for section in self.sections}


@dataclass(frozen=True, order=True)
class Marker:
    """A test that claims a rule."""

    rule: str
    test: str
    line: int


def load(path: Path) -> Specification:
    """Read the rules; a ValueError names the first thing wrong with them."""
    document = tomllib.loads(path.read_text("utf-8"))
    sections = tuple(_section(entry) for entry in document["section"])
    counted = Counter(rule.id for section in sections for rule in section.rules)
    counted.update({section.id for section in sections} - set(counted))
    if repeated := [id_ for id_, count in counted.items() if count > 1]:
        raise ValueError(f"given twice: {', '.join(repeated)}")
    resolved = frozenset(document["milestones"]["resolved"])
    if unknown := sorted(resolved - set(_MILESTONES)):
        raise ValueError(f"milestones.resolved: unknown {', '.join(unknown)}")
    return Specification(sections, resolved)


def _section(entry: dict[str, object]) -> Section:
    id_, title, rules = entry["id"], entry["title"], entry["rules"]
    assert isinstance(id_, str)
    assert isinstance(title, str)
    assert isinstance(rules, list)
    made = tuple(Rule(**rule) for rule in rules)
    for rule in made:
        # A section holds itself ("W7"), lettered rules ("B2.6a") or numbered ones ("B10.3").
        if not re.fullmatch(rf"{re.escape(id_)}(\.\d+)?[a-z]?", rule.id):
            raise ValueError(f"rule {rule.id}: not an id of section {id_}")
        if rule.milestone not in _MILESTONES:
            raise ValueError(f"rule {rule.id}: unknown milestone {rule.milestone}")
        if not rule.text.strip():
            raise ValueError(f"rule {rule.id}: no text")
    return Section(id_, title, made)


def markers(root: Path) -> list[Marker]:
    """Every claim in the test files under `root`/tests, sorted."""
    found: list[Marker] = []
    for path in sorted((root / "tests").rglob("*.py")):
        module = ast.parse(path.read_text("utf-8"), filename=str(path))
        found += _claims(module, path.relative_to(root).as_posix())
    return sorted(set(found))


def _claims(module: ast.Module, name: str) -> Iterator[Marker]:
    # Decorators and `pytestmark` belong to the definition that they stand at or in.
    pending: list[tuple[ast.AST, str]] = [(module, name)]
    while pending:
        node, owner = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owner = f"{owner}::{node.name}"
        if isinstance(node, ast.Call) and _is_rule(node.func):
            for argument in node.args:
                yield Marker(_text(argument, owner), owner, node.lineno)
        pending += [(child, owner) for child in ast.iter_child_nodes(node)]


def _text(argument: ast.expr, owner: str) -> str:
    match argument:
        case ast.Constant(value=str(text)):
            return text
    raise ValueError(f"{owner}, line {argument.lineno}: rule ids must be plain strings")


def _is_rule(function: ast.expr) -> bool:
    return ast.unparse(function) in {"pytest.mark.rule", "mark.rule"}


def problems(specification: Specification, claims: Iterable[Marker]) -> list[str]:
    """What `--check` refuses, one line each, apart from a stale document."""
    claimed = list(claims)
    found = [
        f"{claim.test} (line {claim.line}): no rule {claim.rule} in docs/conformance.toml"
        for claim in claimed
        if claim.rule not in specification.known
    ]
    proven = {claim.rule for claim in claimed}
    due = [
        rule
        for rule in specification.rules.values()
        if rule.milestone in specification.resolved and not rule.deviation
    ]
    found += [
        f"rule {rule.id} ({rule.milestone} is resolved): neither a test nor a deviation"
        for rule in due
        if rule.id not in proven
    ]
    found += [
        f"rule {rule.id}: none of its tests is named {_pitfall_name(rule)}..."
        for rule in due
        if rule.id.startswith(_PITFALLS)
        and not any(
            claim.rule == rule.id and f"::{_pitfall_name(rule)}" in claim.test for claim in claimed
        )
    ]
    return found


def _pitfall_name(rule: Rule) -> str:
    return f"test_pitfall_{rule.id.removeprefix(_PITFALLS)}_"


def render(specification: Specification, claims: Iterable[Marker]) -> str:
    """The text of docs/conformance.md."""
    tests: dict[str, list[str]] = {}
    for claim in claims:
        names = tests.setdefault(claim.rule, [])
        if claim.test not in names:
            names.append(claim.test)
    lines = [
        "# Conformance",
        "",
        "<!-- Written by `make conformance` from docs/conformance.toml and the tests. -->",
        "",
        "What RocketMQ peers rely on, rule by rule, and the tests that prove it. B: how queues and",
        "messages are balanced; W: bytes on the wire. The milestone says when a rule is due: M1 first",
        "slice, M2 the whole client, M3 the embedded cluster, M4 Spark, M5 own strategies and tools.",
        "In italics: what the Java client does instead, where we do better on purpose.",
        "",
        "What no client can have on an unmodified broker, and why:",
        "[How balancing works](explanation/rebalance.md#what-an-unmodified-broker-does-not-allow).",
        "",
        *_summary(specification, tests),
    ]
    for section in specification.sections:
        lines += _table(section, tests)
    return "\n".join(lines) + "\n"


def _summary(specification: Specification, tests: dict[str, list[str]]) -> list[str]:
    lines = ["| milestone | rules | tested | deviations | open |", "|---|---|---|---|---|"]
    for milestone in _MILESTONES:
        due = [rule for rule in specification.rules.values() if rule.milestone == milestone]
        tested = sum(rule.id in tests for rule in due)
        deviating = sum(bool(rule.deviation) for rule in due)
        still_open = sum(rule.id not in tests and not rule.deviation for rule in due)
        name = f"{milestone} (resolved)" if milestone in specification.resolved else milestone
        if due:
            lines.append(f"| {name} | {len(due)} | {tested} | {deviating} | {still_open} |")
    return lines


def _table(section: Section, tests: dict[str, list[str]]) -> list[str]:
    lines = ["", f"## {section.id} {section.title}", ""]
    lines += ["| rule | due | statement | proof |", "|---|---|---|---|"]
    for rule in section.rules:
        proof = [f"`{name}`" for name in tests.get(rule.id, [])]
        if rule.deviation:
            proof.append(f"Deviation: {rule.deviation}")
        statement = f"{rule.text} *{rule.differs}*" if rule.differs else rule.text
        cells = [rule.id, rule.milestone, statement, "<br>".join(proof) or "open"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if section.id not in {rule.id for rule in section.rules} and section.id in tests:
        names = ", ".join(f"`{name}`" for name in tests[section.id])
        lines += ["", f"About the section as a whole: {names}"]
    return lines


def _unproven(specification: Specification, claims: list[Marker], milestone: str) -> list[str]:
    proven = {claim.rule for claim in claims}
    return [
        f"{rule.id}  {rule.text}"
        for rule in specification.rules.values()
        if rule.milestone == milestone and rule.id not in proven and not rule.deviation
    ]


def _coarse(specification: Specification, claims: list[Marker]) -> list[str]:
    whole = specification.known - set(specification.rules)
    return [f"{claim.rule}  {claim.test}" for claim in claims if claim.rule in whole]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Rules of the specification and their tests.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit 1 when something is missing")
    action.add_argument("--write", action="store_true", help="write docs/conformance.md")
    action.add_argument("--open", metavar="M", choices=_MILESTONES, help="list unproven rules")
    action.add_argument("--coarse", action="store_true", help="list claims of whole sections")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args(arguments)
    try:
        specification = load(options.root / "docs" / "conformance.toml")
        claims = markers(options.root)
    except (ValueError, SyntaxError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.open:
        print("\n".join(_unproven(specification, claims, options.open)))
        return 0
    if options.coarse:
        print("\n".join(_coarse(specification, claims)))
        return 0
    found = problems(specification, claims)
    document = options.root / "docs" / "conformance.md"
    text = render(specification, claims)
    if options.write:
        document.write_text(text, "utf-8")
    elif not document.exists() or document.read_text("utf-8") != text:
        found.append("docs/conformance.md is out of date: run `make conformance`")
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
