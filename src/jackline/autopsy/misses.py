"""Tell how a structured output came to be missing, as far as the story shows.

Laws: (1) pure; (2) only for agents whose own transcript holds no other failure; (3) "unknown" is an
honest answer.
Not here: the same words hiding an API failure (causes.py settles that first).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from jackline.autopsy.story import AgentStory, Ending

if TYPE_CHECKING:
    from jackline.failures import Failure


class Miss(StrEnum):
    """In which way the structured output did not come."""

    PROSE = "the model ended in prose and never called the tool"
    INVALID = "the model called the tool, but never with valid output"
    TURN_LIMIT = "the turn limit came first"
    NOT_OFFERED = "the tool was not offered to the model"
    UNKNOWN = "the transcript does not show why"


_BY_SUB = {
    "max_turns": Miss.TURN_LIMIT,
    "retries_exhausted": Miss.INVALID,
    "invalid": Miss.INVALID,
    "not_offered": Miss.NOT_OFFERED,
}


def how_missed(story: AgentStory, failure: Failure) -> Miss:
    """The way this agent missed its structured output."""
    known = _BY_SUB.get(failure.sub or "")
    if known is not None:
        return known
    ended_in_words = story.ending is Ending.FINISHED or bool(story.last_words)
    return Miss.PROSE if ended_in_words else Miss.UNKNOWN
