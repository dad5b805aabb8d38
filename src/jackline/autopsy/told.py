"""Set what people and programs were told beside what happened, and count both.

Laws: (1) pure; (2) reports that differ only in a name or a number are one row; (3) an answer's text
never enters a row.
Not here: what one report amounts to (hearsay.py), the table's looks (faces).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.hearsay import ELSEWHERE, Heard, error_words, failure_told, may_show
from jackline.autopsy.story import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from jackline.autopsy.story import AgentStory, Told
    from jackline.failures import Kind

_FIGURES = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class ToldRow:
    """So many times somebody was told the same thing."""

    count: int
    teller: str
    claim: str
    text: str | None
    names: Kind | None
    heard: Heard
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class _Words:
    teller: str
    claim: str
    is_error: bool
    names: Kind | None
    heard: Heard


def told_rows(
    agents: Iterable[AgentStory],
    kind: Kind | None,
    *,
    now: datetime,
    hide: Iterable[str] = (),
) -> tuple[ToldRow, ...]:
    """Everything told about these agents, most frequent first.

    `kind` is what really happened to them; `hide` are words of people that may stand in a report.
    """
    agents = list(agents)
    labels = sorted({s.label for s in agents if s.label} | set(hide), key=len, reverse=True)
    heard: dict[tuple[_Words, str | None], list[str | None]] = {}
    silent = 0
    for story in agents:
        # A main session's end is seen by whoever sits before it.
        silent += not story.told and story.role is not Role.MAIN
        for told in story.told:
            words = _words(told, kind, now=now)
            text = (
                error_words(told, [story.label or "", *labels])
                if may_show(told, story, now=now)
                else None
            )
            heard.setdefault((words, _shape(text)), []).append(text)
    rows = [
        ToldRow(len(texts), w.teller, w.claim, shared_words(texts), w.names, w.heard, w.is_error)
        for (w, _), texts in heard.items()
    ]
    if silent:
        rows.append(ToldRow(silent, "", "", None, None, Heard.NOTHING))
    return tuple(sorted(rows, key=lambda r: (-r.count, r.teller, r.claim, r.text or "")))


def _words(told: Told, kind: Kind | None, *, now: datetime) -> _Words:
    named = failure_told(told, now=now)
    names = None if named is None else named.kind
    if not told.is_error:
        heard = Heard.SUCCESS
    elif names is None:
        heard = Heard.AN_ERROR
    else:
        heard = Heard.THE_CAUSE if names is kind else Heard.ANOTHER_CAUSE
    return _Words(told.teller, told.claim, told.is_error, names, heard)


def _shape(text: str | None) -> str | None:
    """The text without the words that hold figures: ids, indices, times."""
    if text is None:
        return None
    return " ".join(ELSEWHERE if _FIGURES.search(word) else word for word in text.split())


def shared_words(texts: Sequence[str | None]) -> str | None:
    """The words that all texts begin and end with; what differs between them becomes `…`."""
    shown = sorted({text for text in texts if text})
    if not shown:
        return None
    split = [text.split() for text in shown]
    first, last = split[0], split[-1]
    start = _agreeing(first, last)
    if start == len(first) == len(last):
        return " ".join(first)
    end = min(_agreeing(first[start:][::-1], words[start:][::-1]) for words in split)
    tail = first[len(first) - end :] if end else []
    return " ".join([*first[:start], ELSEWHERE, *tail])


def _agreeing(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
