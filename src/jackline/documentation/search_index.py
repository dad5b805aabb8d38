"""Make the index that the page's search reads: every section of every page, with its words.

Rules: (1) pure: the same pages make the same bytes; (2) sections are what headings open; a word
counts more in a heading than below it; how sections are ranked is in site/search.js; (3) decisions
and changes are history: they are found, after the pages that say how things are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jackline.documentation.rendering import anchor, without_comments
from jackline.documentation.sources import Page

_HEADING = re.compile(r"^(#{1,4}) (.+)$")
_FENCE = re.compile(r"^(```|~~~)")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_HISTORY = ("decisions/", "CHANGELOG", "ARCHITECTURE", "CONTRIBUTING")
_SHOWN = 180


@dataclass(slots=True)
class Section:
    """One heading and what is written below it."""

    page: str
    title: str
    heading: str
    lines: list[str]

    @property
    def address(self) -> str:
        """Where it is, from the first page."""
        mark = anchor(self.heading)
        return f"{self.page}.html" + (f"#{mark}" if self.heading != self.title else "")


def sections(page: Page) -> Iterator[Section]:
    """The sections of a page, in order."""
    current: Section | None = None
    in_code = False
    for line in without_comments(page.text).splitlines():
        in_code ^= bool(_FENCE.match(line))
        heading = None if in_code else _HEADING.match(line)
        if heading is not None:
            if current is not None:
                yield current
            name = page.title if heading[1] == "#" else re.sub(r"[`*]", "", heading[2])
            current = Section(page.name, page.title, name, [])
        elif current is not None:
            current.lines.append(line)
    if current is not None:
        yield current


def words(text: str) -> list[str]:
    """The words of a text as they are searched: small, and parts of compounds as well."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        parts = re.split(r"[-_.]", word)
        found += [word, *parts] if len(parts) > 1 else [word]
    return found


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN].rpartition(' ')[0]} …"


def search_index(pages: Iterable[Page]) -> bytes:
    """The index as a script that defines it, so that it also loads from a file."""
    entries = []
    for page in pages:
        history = page.name.startswith(_HISTORY)
        for section in sections(page):
            plain = _LINK.sub(r"\1", " ".join(section.lines))
            text = " ".join(re.sub(r"[`*|>#]|:?-{2,}:?", " ", plain).split())
            counts = Counter(words(text))
            entries.append(
                {
                    "at": section.address,
                    "title": section.title,
                    "heading": section.heading,
                    "text": _shortened(text),
                    "history": int(history),
                    "words": dict(sorted(counts.items())),
                }
            )
    data = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    return f"globalThis.searchIndex = {data};\n".encode()
