"""Give the words of a web page.

Laws: (1) whatever the page is, there is a text and no error; (2) scripts and styles are no words;
(3) what stood in lines of its own still does.
Not here: getting the page (fetch.py).
"""

from __future__ import annotations

from html.parser import HTMLParser

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg"})
_IN_LINE = frozenset(
    {
        "a",
        "abbr",
        "b",
        "cite",
        "code",
        "em",
        "i",
        "kbd",
        "mark",
        "q",
        "s",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "u",
        "var",
    }
)


def page_text(page: str) -> str:
    """The page as plain lines."""
    reading = _Reading()
    reading.feed(page)
    reading.close()
    lines = (" ".join(line.split()) for line in "".join(reading.parts).split("\n"))
    return "\n".join(line for line in lines if line)


class _Reading(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Blocks begin on a new line."""
        self._unseen += tag in _UNSEEN
        if tag not in _IN_LINE:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """Blocks end with their line."""
        self._unseen = max(0, self._unseen - (tag in _UNSEEN))
        if tag not in _IN_LINE:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Words, if they are seen."""
        if not self._unseen:
            # A line break in the source is a space on the page.
            self.parts.append(" ".join(data.split("\n")))
