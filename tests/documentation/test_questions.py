"""Ten usual questions, and the clients by name: the first hit of the search answers each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from jackline.documentation.handler import Site
from jackline.documentation.search_index import search_index, words
from jackline.documentation.sources import Page as SitePage
from jackline.documentation.sources import Sources
from tests.dashboard.browser import chromium, opened
from tests.dashboard.service_thread import ServiceThread
from tests.documentation.questions import QUESTIONS, Question, answer_of


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the pages, as a gateway serves them."""
    with ServiceThread(tmp_path_factory.mktemp("service")) as service:
        yield f"{service.url}/docs/"


@pytest.fixture
def page(browser: Browser, docs: str) -> Iterator[Page]:
    with opened(browser, docs, live=False) as found:
        yield found


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.about)
def test_the_first_hit_answers(question: Question, page: Page, docs: str) -> None:
    for typed in question.typed:
        section, _ = answer_of(page, docs, typed)
        for words_of_answer in question.answer:
            assert words_of_answer in section, (typed, page.url)
        assert len(section.split()) < 700, "an answer that is read, not searched again"


def test_nothing_is_asked_of_anybody_else(page: Page, docs: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer_of(page, docs, "bedrock")
    assert asked
    assert all(url.startswith(docs) for url in asked)


def test_words_that_no_page_has_are_said_to_be_missing(page: Page, docs: str) -> None:
    page.goto(f"{docs}index.html")
    page.keyboard.press("/")
    page.keyboard.type("xyzzyplugh")
    expect(page.locator("#found")).to_have_text("No page has these words.")
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_hidden()


def test_a_link_can_bring_its_words_along(page: Page, docs: str) -> None:
    page.goto(f"{docs}?q=uninstall")
    expect(page.locator("#found li").first).to_contain_text("uninstall")


def test_it_works_from_a_disk_without_a_server(browser: Browser, tmp_path: Path) -> None:
    site = Site(Sources.installed())
    for address in ("index.html", "search-index.js", "search.js", "site.css", "mark.svg"):
        (tmp_path / address).write_bytes(site.content(address) or b"")
    with opened(browser, (tmp_path / "index.html").as_uri(), live=False) as page:
        page.keyboard.press("/")
        page.keyboard.type("slack")
        expect(page.locator("#found li").first).to_contain_text("Slack")


def test_parts_of_compounds_are_found_as_well() -> None:
    assert words("`x-should-retry` costs 0.5") == [
        *("x-should-retry", "x", "should", "retry", "costs", "0.5", "0", "5")
    ]


def test_sections_are_what_headings_open_and_code_has_none() -> None:
    text = "# One `a`\nfirst\n```sh\n# no heading\n```\n## Two\nsecond <!-- unseen -->\n"
    index = search_index([SitePage("one", "docs/one.md", text)]).decode()
    assert '"at":"one.html","title":"One a","heading":"One a"' in index
    assert '"at":"one.html#two"' in index
    assert "no heading" in index
    assert "unseen" not in index
