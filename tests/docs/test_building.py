"""The pages are plain Markdown: a reader that knows nothing of ours reads them as meant."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from tests.docs.pages import ROOT, all_pages
from tests.docs.test_pages import anchors

NAMES = [str(page.relative_to(ROOT)) for page in all_pages() if page.suffix == ".md"]
READER = MarkdownIt("commonmark").enable("table")


@pytest.mark.parametrize("name", NAMES)
def test_tables_blocks_and_headings_of_a_page_are_read_as_meant(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    tokens = READER.parse(text)
    headings = [token for token in tokens if token.type == "heading_open"]
    assert [token.tag for token in headings].count("h1") == 1, "one title"
    words = [token.content for token in tokens if token.type == "inline"]
    for said in words:
        assert not said.startswith("|"), f"a table that is none: {said[:60]}"
        assert "\n|---" not in said, f"a table that needs an empty line before it: {said[:60]}"
    fences = [token for token in tokens if token.type == "fence"]
    marks = [line for line in text.splitlines() if line.lstrip("> ").startswith("```")]
    assert len(marks) == 2 * len(fences), "a block that is never closed"
    titles = [tokens[tokens.index(token) + 1].content for token in headings]
    assert len(anchors(ROOT / name)) == len(titles), "two headings share an anchor"
