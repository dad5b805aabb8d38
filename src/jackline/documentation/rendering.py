"""Render one page as HTML: Markdown inside, a line to search and to go back on top.

Rules: (1) raw HTML of a page is not passed on: comments vanish, the rest is shown as text; (2)
headings have the anchors that GitHub gives them; (3) a link to what is not in the site is shown as
text; (4) no inline script and no inline style, so that the strictest policy fits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from jackline.documentation.sources import FIRST, Page, Sources

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE_OR_COMMENT = re.compile(r"^(```|~~~).*?^\1[ \t]*$|<!--.*?-->", re.DOTALL | re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def without_comments(text: str) -> str:
    """Markdown without its comments; those in blocks of code stay."""
    return _FENCE_OR_COMMENT.sub(lambda m: "" if m[0].startswith("<!--") else m[0], text)


def rendered(page: Page, sources: Sources) -> bytes:
    """The page as one HTML document."""
    reader = MarkdownIt("commonmark", {"html": False}, renderer_cls=RendererHTML).enable("table")
    tokens = reader.parse(without_comments(page.text))
    _set_anchors(tokens)
    for token in tokens:
        if token.type in ("th_open", "td_open") and token.attrs:
            token.attrs = {"class": str(token.attrs["style"]).removeprefix("text-align:")}
        token.children = _with_addresses(token.children or [], page, sources)
    body = reader.renderer.render(tokens, reader.options, {})
    # Wide tables scroll on their own, not the whole page.
    body = body.replace("<table>", '<div class="wide"><table>').replace(
        "</table>", "</table></div>"
    )
    return _DOCUMENT.format(
        title=escape(page.title),
        up="../" * page.name.count("/"),
        first=FIRST,
        contents=_contents(tokens),
        body=body,
    ).encode()


def _set_anchors(tokens: Sequence[Token]) -> None:
    for opened, words in pairwise(tokens):
        if opened.type == "heading_open":
            opened.attrSet("id", anchor(words.content))


def _contents(tokens: Sequence[Token]) -> str:
    """Links to the sections of a long page."""
    found = [
        (str(opened.attrGet("id")), re.sub(r"[`*]", "", words.content))
        for opened, words in pairwise(tokens)
        if opened.type == "heading_open" and opened.tag == "h2"
    ]
    if len(found) < 3:
        return ""
    links = "".join(f'<li><a href="#{escape(id_)}">{escape(text)}</a></li>' for id_, text in found)
    return f'<nav class="contents" aria-label="On this page"><ul>{links}</ul></nav>'


def _with_addresses(tokens: list[Token], page: Page, sources: Sources) -> list[Token]:
    """The same text with the site's addresses; a link that leads nowhere loses its mark."""
    kept: list[Token] = []
    open_links: list[bool] = []
    for token in tokens:
        if token.type == "link_open":
            address = sources.address(page.name, str(token.attrGet("href")))
            open_links.append(address is not None)
            if address is None:
                continue
            token.attrSet("href", address)
            if ":" in address:
                token.attrSet("rel", "noreferrer")
        elif token.type == "link_close" and not open_links.pop():
            continue
        elif token.type == "image":
            token.attrSet("src", sources.address(page.name, str(token.attrGet("src"))) or "")
        kept.append(token)
    return kept


_DOCUMENT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · jackline</title>
<link rel="icon" href="{up}mark.svg">
<link rel="stylesheet" href="{up}site.css">
<script src="{up}search-index.js" defer></script>
<script src="{up}search.js" defer></script>
<header>
<a class="brand" href="{up}{first}.html">jackline docs</a>
<form role="search">
<input type="search" name="q" placeholder="Search, or press /" autocomplete="off"
 aria-label="Search the pages">
</form>
</header>
<section id="found" aria-live="polite" data-up="{up}" hidden></section>
{contents}
<main>
{body}</main>
</html>
"""
