from __future__ import annotations

import pytest


@pytest.fixture
def page(tmp_path):
    def make(text, name="page.md"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


@pytest.mark.parametrize(
    "text",
    [
        "[other](other.md)",
        "[part](other.md#loss-policy)",
        "[here](#top)\n\n# Top\n",
        "![picture](other.md)",
        "[web](https://example.org/nowhere)",
        "`[code](nowhere.md)`",
        "```\n[code](nowhere.md)\n```\n",
        '[titled](other.md "a title")',
    ],
)
def test_good_links_pass(tool, page, text):
    page("# Loss policy\n", "other.md")
    assert tool.broken(page(text)) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[gone](nowhere.md)", "no such file"),
        ("[gone](other.md#nothing)", "no such heading"),
        ("[gone](#nothing)", "no such heading"),
        ("```\n# nothing\n```\n[gone](#nothing)", "no such heading"),
    ],
)
def test_a_link_to_nowhere_is_named(tool, page, text, complaint):
    page("# Loss policy\n", "other.md")
    (problem,) = tool.broken(page(text))
    assert complaint in problem


def test_all_links_of_this_repository_lead_somewhere(tool):
    assert tool.main() == 0
