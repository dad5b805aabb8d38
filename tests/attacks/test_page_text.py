"""A web page that was written to keep its reader busy.

Rules: those of this package. Work is counted in characters that were passed, not in seconds.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.batches import fetch
from jackline.batches.fetch import MOST_READ
from jackline.batches.fetch import page_text as text_of
from jackline.batches.tool import ToolContext
from jackline.upstream.bounded_answers import FetchedDocument

_PIECES = (
    *("<!--", "<!", "<![", "<![CDATA[", "<?", "</", "&#", "&#x", "&", "<a <a", "<a", "<script"),
    *("<script>", "</script", "<style>", "<svg>", "</svg>", "<a b='", '<a b="', "<a =", "= ", "'"),
    *('"', "<", ">", "-->", "--", "--!>", "/>", "9", "word ", "\n", "<p>", "</p>", "&amp;", "é"),
)


def _work_of(page: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many characters are passed to read the page."""
    passed = 0
    plain = fetch._Page._pass

    def counted(self: fetch._Page, what: re.Pattern[str]) -> re.Match[str] | None:
        nonlocal passed
        begin = self._at
        found = plain(self, what)
        passed += self._at - begin
        return found

    with monkeypatch.context() as patch:
        patch.setattr(fetch._Page, "_pass", counted)
        text_of(page)
    return passed


@pytest.mark.parametrize("piece", [*_PIECES, "<!--<a b='", "<a b='><!--\"", "<script><!--</scrip"])
def test_a_page_is_passed_once_whatever_it_repeats(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "<html>" + piece * (200_000 // len(piece))
    assert _work_of(page, monkeypatch) <= len(page)


@given(st.lists(st.sampled_from(_PIECES), max_size=60))
def test_any_page_has_a_text_and_is_passed_once(pieces: list[str]) -> None:
    page = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        assert _work_of(page, patch) <= len(page)
    assert "\n\n" not in text_of(page)


@given(
    st.lists(st.tuples(st.sampled_from(["p", "b", "li", "h1"]), st.from_regex(r"\A[a-z]{1,8}\Z")))
)
def test_the_words_of_a_page_stay_in_their_order(parts: list[tuple[str, str]]) -> None:
    page = "".join(
        f"<{tag} title='a > b' x>{word}</{tag}> <!-- > <b>no</b> --><script>no('<p>')</script>"
        f"<svg><text>no</text></svg>"
        for tag, word in parts
    )
    assert text_of(page).split() == [word for _, word in parts]


@given(st.text(alphabet=st.characters(exclude_characters="<&")))
def test_a_page_without_markup_is_its_own_text(text: str) -> None:
    assert text_of(text).split() == text.split()


def test_a_number_of_many_digits_is_no_error() -> None:
    assert text_of("a &#" + "9" * 100_000 + "; b &lt;i&gt; &#x41;").endswith("9; b <i> A")


def test_only_the_beginning_of_a_very_long_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "<p>word</p>" * 450_000
    assert _work_of(page, monkeypatch) <= MOST_READ
    assert text_of(page).endswith(f"was not read: {len(page) - MOST_READ:,} characters)")


def test_all_batches_share_the_places_for_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that gives batch after batch has so many pages under way, and no more."""
    at_once, most = 0, 0

    async def main() -> None:
        go_on = asyncio.Event()

        async def get(_self: fetch.FetchTool, _url: str) -> FetchedDocument:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await go_on.wait()
            at_once -= 1
            return FetchedDocument()

        monkeypatch.setattr(fetch.FetchTool, "_get", get)
        work = [
            asyncio.create_task(fetch.FetchTool().run({"url": "http://x/"}, ToolContext(Path())))
            for _ in range(fetch.AT_ONCE_IN_ALL * 2)
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert at_once == fetch.AT_ONCE_IN_ALL
        go_on.set()
        await asyncio.gather(*work, return_exceptions=True)

    asyncio.run(main())
    assert most == fetch.AT_ONCE_IN_ALL
