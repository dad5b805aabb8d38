"""Fold the form of a text, so that one message is the same however it was printed.

Rules: (1) folding is linear and idempotent; (2) it removes form, never content: white space,
quotes, dots, dashes, terminal colours and case; (3) a huge text is cut to its beginning and its
end; (4) keys and tokens are redacted before a text is shown, and no more of it is searched.
"""

from __future__ import annotations

import re
from functools import cache

HEAD = 48_000
TAIL = 16_000

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_TAG = re.compile(r"<[^<>]{0,2000}>")
_STYLE_OR_SCRIPT = re.compile(r"<(style|script)\b[^<]{0,20000}", re.IGNORECASE)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f\u200b\ufeff]+")
_LOOKS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′ʼ´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("∙•⋅・‧●", "·"),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\u00a0\u202f\u2009\u2007\u3000", " "),
        "…": "...",
        "`": "",
    }
)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled when it is first used: short commands use few of the many."""
    return re.compile(pattern)


def shorten(text: str) -> str:
    """The text itself, or the beginning and the end of a huge one."""
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]} {text[-TAIL:]}"


def fold(text: str) -> str:
    """The text on one line with plain quotes, dots and dashes, in its own case."""
    plain = _ANSI.sub("", shorten(text)).translate(_LOOKS)
    return _SPACE.sub(" ", plain).strip()


_SECRET = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|gho|ghu|ghs|github_pat|AKIA|ASIA|AIza|ya29|eyJ)[-_.]?"
    r"[A-Za-z0-9_\-.*]{8,400}|\bBearer\s+[^\s\"',]{8,400}"
    # Glued to a word only what no word goes on with: a `task-list` is no key.
    r"|(?-i:sk-(?:ant|proj|or|svcacct)-[A-Za-z0-9_\-.*]{8,400}|[spr]k_(?:live|test)_\w{8,400}"
    r"|(?:sk-|xai-|gsk_|hf_)(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{20,400}"
    r"|(?:gh[pousr]|github_pat)_(?=[A-Za-z_]{0,40}\d)\w{20,400}|A[KS]IA[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_\-]{30,400}|ya29\.[A-Za-z0-9_\-]{20,400}"
    r"|eyJ(?=[A-Za-z_\-]{0,80}\d)[A-Za-z0-9_\-.]{8,400})",
    re.IGNORECASE,
)


REDACTED = "(secret)"
_LONGEST_SECRET = 450


def redact(text: str, most: int) -> str:
    """The first `most` characters without what looks like a key; vendors quote keys in errors.

    No more is searched, however long the text is. A key across the end is recognised as one.
    """
    return _SECRET.sub(REDACTED, text[: most + _LONGEST_SECRET])[:most]


def is_html(text: str) -> bool:
    """Whether the text is a web page rather than a message."""
    start = text.lstrip("\ufeff \t\r\n")[:200].lower()
    return start.startswith(("<!doctype html", "<html", "<head", "<?xml", "<h1", "<center"))


def strip_tags(page: str) -> str:
    """The text of a web page."""
    return _TAG.sub(" ", _STYLE_OR_SCRIPT.sub(" ", shorten(page)))
