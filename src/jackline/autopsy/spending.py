"""Split what was spent at the moment from which success was impossible.

Laws: (1) pure; (2) only a failure that no repetition cures, and that reaches beyond its request,
has such a moment; (3) spending counts as late only until the wall's own reset.
Not here: reading token counts (the reading half); they are lower bounds, and faces say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.story import AgentStory, Role
from jackline.failures import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from jackline.autopsy.causes import Cause


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens around the point of no return, and agents started in vain after it."""

    point: datetime
    before: int
    after: int
    started_after: int


def point_of_no_return(cause: Cause) -> datetime | None:
    """The first refusal, where repeating could not help anyone behind the same wall."""
    failure = cause.failure
    if failure.retry_same or failure.scope in {Scope.REQUEST, Scope.CLIENT}:
        return None
    return cause.first_at


def spenders(stories: Sequence[AgentStory]) -> list[AgentStory]:
    """Those whose spending is told: the agents under a main session, or it alone without any."""
    agents = [story for story in stories if story.role is not Role.MAIN]
    return agents or list(stories)


def spending_around(cause: Cause, stories: Sequence[AgentStory]) -> Spending | None:
    """What the agents of its sessions spent before and after success was impossible, if it was."""
    point = point_of_no_return(cause)
    if point is None:
        return None
    start = point.timestamp()
    until = float("inf") if cause.resets_at is None else cause.resets_at.timestamp()
    before = after = started = 0
    # Other sessions may run on other accounts: only those that met the wall are known to face it.
    facing = {met.story.session_id for met in cause.meetings}
    for story in spenders([story for story in stories if story.session_id in facing]):
        for second, tokens in story.spent.items():
            # Within the second of the point nobody can tell; "after" stays a lower bound.
            if second <= start:
                before += tokens
            elif second < until:
                after += tokens
        begun = story.started_at
        started += begun is not None and start < begun.timestamp() < until
    return Spending(point, before, after, started)
