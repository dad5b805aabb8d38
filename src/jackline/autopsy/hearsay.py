"""Say what a report about an agent amounted to: the failure it named, and whether it was true.

Laws: (1) pure; texts are judged by `classify` and by nothing here; (2) a text is shown only where
it is an error's words: what an agent answered is content, and content is hidden.
Not here: collecting the reports (the reading half), counting them (told.py).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from jackline.autopsy.story import AgentStory, Ending, Told
from jackline.failures import Failure, Kind, Observation, classify

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


ELSEWHERE = "…"
# Shorter ones say nothing, and would be found inside other words.
SHORTEST_LABEL = 4
_QUOTED = re.compile(r'"[^"]*"')


class Heard(StrEnum):
    """What those who waited for a stopped agent were left to believe."""

    THE_CAUSE = "the cause"
    ANOTHER_CAUSE = "another cause"
    AN_ERROR = "an error"
    SUCCESS = "success"
    NOTHING = "nothing"


def failure_told(told: Told, *, now: datetime) -> Failure | None:
    """The failure that the reported words name, if they name one."""
    failure = _named(told.text, told.at or now)
    return None if failure.kind is Kind.NOT_A_FAILURE else failure


@lru_cache(maxsize=4096)
def _named(text: str, now: datetime) -> Failure:
    # A fleet is told the same few sentences hundreds of times.
    return classify(Observation.of_text(text), now=now)


def heard_about(story: AgentStory, kind: Kind, *, now: datetime) -> Heard:
    """What was believed about an agent whom such a failure stopped; the last word counts."""
    if not story.told:
        return Heard.NOTHING
    last = story.told[-1]
    named = failure_told(last, now=now)
    if not last.is_error:
        # "Completed", with the error as the result: whoever reads the status believes a success.
        return Heard.SUCCESS
    if named is None:
        return Heard.AN_ERROR
    return Heard.THE_CAUSE if named.kind is kind else Heard.ANOTHER_CAUSE


def may_show(told: Told, story: AgentStory, *, now: datetime) -> bool:
    """Whether the words are an error's, and not an answer that happens to speak of errors."""
    if not told.is_error and story.ending is not Ending.FAILED:
        return False
    return failure_told(told, now=now) is not None


def error_words(told: Told, labels: Iterable[str]) -> str:
    """The error in a report, without what people and agents wrote around it."""
    # What an agent had written before it died follows on later lines.
    text = next((line for line in told.text.splitlines() if line.strip()), "")
    # Clients put in quotes how someone called an agent or a run, and without a given label they
    # use the prompt's first words.
    text = _QUOTED.sub(f'"{ELSEWHERE}"', text)
    for label in labels:
        if len(label) >= SHORTEST_LABEL:
            text = text.replace(label, ELSEWHERE)
    return text
