"""The text of a web page, whoever wrote the page.

Rules: (1) the work grows with the page's length and no faster: every character is passed once, and
what is opened and never closed takes the rest of the page, as in a browser; (2) every page has a
text and no error; (3) scripts, styles and drawings are left out, lines stay lines; (4) only the
beginning of a very long page is read.
"""

from __future__ import annotations

import html
import re

MOST_READ = 1_000_000
"""Characters of a page."""
_UNSEEN = frozenset({"noscript", "template", "svg"})
_IN_LINE = frozenset(
    {
        *("a", "abbr", "b", "cite", "code", "em", "i", "kbd", "mark", "q", "s"),
        *("small", "span", "strong", "sub", "sup", "u", "var"),
    }
)
_OPENING = re.compile("<")
_NAME = re.compile(r"/?[A-Za-z][^\s/>]*")
# A quote means something only after an equals sign; inside of it, `>` ends no tag.
_TAG_STOP = re.compile(r">|=\s*[\"']")
_QUOTES = {quote: re.compile(quote) for quote in "\"'"}
_TAG_END = re.compile(">")
_COMMENT_END = re.compile("--!?>")
# What is in these is no markup up to their own end.
_RAW_ENDS = {name: re.compile(f"(?i)</{name}") for name in ("script", "style")}
# Bounded: html.unescape() itself fails at a number of thousands of digits.
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")


def page_text(page: str) -> str:
    """The page as plain lines."""
    reading = _Reading(page[:MOST_READ])
    reading.read()
    lines = (" ".join(line.split()) for line in "".join(reading.parts).split("\n"))
    text = "\n".join(line for line in lines if line)
    left = len(page) - MOST_READ
    return f"{text}\n(the rest of the page was not read: {left:,} characters)" if left > 0 else text


class _Reading:
    """One pass over a page."""

    def __init__(self, page: str) -> None:
        self.parts: list[str] = []
        self._page = page
        self._at = 0
        self._unseen = 0

    def read(self) -> None:
        """Collect the words of the whole page."""
        while self._at < len(self._page):
            begin = self._at
            found = self._pass(_OPENING)
            self._words(self._page[begin : found.start() if found else len(self._page)])
            if found:
                self._markup()

    def _pass(self, what: re.Pattern[str]) -> re.Match[str] | None:
        """Go behind the next place that fits, or to the page's end."""
        found = what.search(self._page, self._at)
        self._at = found.end() if found else len(self._page)
        return found

    def _markup(self) -> None:
        """Pass what begins with the `<` before this place."""
        if name := _NAME.match(self._page, self._at):
            self._at = name.end()
            self._tag(name[0].lower())
        elif self._page.startswith("!--", self._at):
            # Also `<!-->` is a comment, and a whole one.
            self._at += 1
            self._pass(_COMMENT_END)
        elif self._page[self._at : self._at + 1] in ("!", "?", "/"):
            self._pass(_TAG_END)
        else:
            self._words("<")

    def _tag(self, name: str) -> None:
        while (stop := self._pass(_TAG_STOP)) and stop[0] != ">":
            self._pass(_QUOTES[stop[0][-1]])
        ends, base = name.startswith("/"), name.removeprefix("/")
        closed = self._page.endswith("/>", 0, self._at)
        if base not in _IN_LINE:
            self.parts.append("\n")
        if base in _RAW_ENDS and not ends and not closed:
            self._pass(_RAW_ENDS[base])
            self._pass(_TAG_END)
        elif base in _UNSEEN and not closed:
            self._unseen = max(0, self._unseen - 1) if ends else self._unseen + 1

    def _words(self, text: str) -> None:
        if text and not self._unseen:
            # A line break in the source is a space on the page.
            text = text.replace("\n", " ")
            self.parts.append(_REFERENCE.sub(lambda found: html.unescape(found[0]), text))
