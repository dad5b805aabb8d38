"""The pages are plain Markdown: a real site generator builds all of them without a warning."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.pages import DOCS, ROOT, all_pages
from tests.docs.test_pages import anchors

WANTED = "zensical"
CACHE = ROOT / ".cache" / "docs_builder" / WANTED
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


def builder() -> Path:
    """Where the site generator is; installed on first use, kept in .cache."""
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            fresh = Path(folder) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
            subprocess.run([*command, str(fresh), WANTED], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half of it.
            with suppress(OSError):
                fresh.rename(CACHE)
    return CACHE


@pytest.mark.soak
def test_the_whole_site_is_built_without_a_warning(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (tmp_path / "mkdocs.yml").write_text("site_name: Jackline\ndocs_dir: docs\n")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(builder()), "NO_COLOR": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    pages = [page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")]
    for page in pages:
        made = "index.html" if page.name == "index" else f"{page.as_posix()}/index.html"
        assert (tmp_path / "site" / made).stat().st_size > 1000, made
