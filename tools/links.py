"""Check that relative links in the Markdown files lead somewhere.

Reads files only; addresses on the web are not visited, so that the check needs no network and
fails only for mistakes made here.

    python tools/links.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

__all__ = ["anchors", "broken", "documents", "main", "prose"]

_ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_FENCE: Final = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]*`")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
_TARGET: Final = re.compile(r"^\(([\w.-]+)\)=\s*$", re.MULTILINE)


def documents(root: Path) -> list[Path]:
    """The Markdown files of the repository: at its top, and under docs."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """The text without fenced code, in which nothing is a link or a heading."""
    return _FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    r"""Names that a link may point at: headings as GitHub and MyST name them, and targets.

    >>> sorted(anchors("# What is `x`?\n\n## Loss policy\n"))
    ['loss-policy', 'what-is-x']
    """
    plain = prose(text)
    names = set(_TARGET.findall(plain))
    for heading in _HEADING.findall(plain):
        words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        names.add(words.strip().replace(" ", "-"))
    return names


def broken(path: Path) -> list[str]:
    """One line per link of the file that leads nowhere."""
    text = path.read_text("utf-8")
    problems = []
    for link in _LINK.findall(_CODE.sub("", prose(text))):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file) if file else path
        if not target.exists():
            problems.append(f"{path.name}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text("utf-8")):
            problems.append(f"{path.name}: {link}: no such heading")
    return problems


def main() -> int:
    """Check all documents; returns 1 when a link is broken."""
    problems = [problem for path in documents(_ROOT) for problem in broken(path)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
