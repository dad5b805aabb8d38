"""Put the verdict and its parts into sentences that all renderings share.

Rules: (1) pure; (2) the first sentence alone says what stopped how many agents, and until when; (3)
token counts are always "at least".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackline.autopsy.figures import clock, counted, duration, times
from jackline.transcripts.story import AgentStory, Role

if TYPE_CHECKING:
    from jackline.autopsy.causes import Cause, RetryPattern, Spending


def verdict(causes: list[Cause], stories: list[AgentStory], unexplained: int, silent: int) -> str:
    """What stopped how many agents, and until when; or that nothing did."""
    total = len(stories)
    if not causes:
        return _verdict_without_cause(total, unexplained, silent)
    stopped = sum(len(cause.agents) for cause in causes)
    if total == 1:
        subject = "The session was" if stories[0].role is Role.MAIN else "The agent was"
    elif stopped == total:
        subject = "Both agents were" if total == 2 else f"All {total:,} agents were"
    else:
        subject = f"{stopped:,} of {total:,} agents {'was' if stopped == 1 else 'were'}"
    first = causes[0]
    phrase = first.name
    if first.resets_at is not None and not first.failure.retry_same:
        phrase += f", which resets {clock(first.resets_at, beside=first.first_at)}"
    if len(causes) == 1:
        return f"{subject} stopped by one cause: {phrase}."
    return (
        f"{subject} stopped by {len(causes)} causes; the first, {phrase}, "
        f"stopped {counted(len(first.agents), 'agent')}."
    )


def _verdict_without_cause(total: int, unexplained: int, silent: int) -> str:
    if total == 0:
        return "No agent was found in what was read."
    if not unexplained and not silent:
        who = "the one agent" if total == 1 else "both agents" if total == 2 else f"all {total:,}"
        return f"Nothing wrong was found: {who} finished."
    parts = []
    if total > 1:
        parts.append(f"{total - unexplained - silent:,} of {counted(total, 'agent')} finished")
    for count, how in (
        (unexplained, "failed without a stated reason"),
        (silent, "stopped silently"),
    ):
        if count:
            parts.append(f"{count:,} {how}" if total > 1 else f"the one agent {how}")
    return f"No cause was found: {', '.join(parts)}."


def retry_sentence(pattern: RetryPattern) -> str:
    """`It occurred 37 times in 34.5 s, every 0.96 s. Nothing waited: the longest pause was 1 s.`"""
    text = f"It occurred {times(pattern.count)}"
    if pattern.span is None or pattern.median_interval is None or pattern.longest_pause is None:
        return f"{text}."
    text += f" in {duration(pattern.span)}"
    if pattern.count > 2:
        text += f", every {duration(pattern.median_interval)}"
    longest = f"the longest pause was {duration(pattern.longest_pause)}"
    return f"{text}. {'Something' if pattern.waited else 'Nothing'} waited: {longest}."


def spending_sentence(cause: Cause, spending: Spending | None) -> str:
    """What was spent before and after the first refusal, or why that does not matter."""
    one = len(cause.agents) == 1
    lost = f"at least {sum(story.tokens for story in cause.agents):,} tokens"
    if spending is None and cause.failure.retry_same:
        return (
            "A retry could succeed, so no moment made all further spending useless; the stopped "
            f"{'agent' if one else 'agents'} had spent {lost}."
        )
    if spending is None:
        whose = "this agent's own request was" if one else "these agents' own requests were"
        return f"Only {whose} hopeless; {lost} had been spent before."
    point = clock(cause.in_own_zone(spending.point), beside=spending.point, seconds=True)
    late = f"at least {spending.after:,}" if spending.after else "none on record"
    sentence = (
        f"From {point} on, success was impossible: at least {spending.before:,} tokens were spent "
        f"before, and {late} after."
    )
    if spending.started_after:
        were = "was" if spending.started_after == 1 else "were"
        sentence += f" {counted(spending.started_after, 'agent')} {were} still started after it."
    return sentence
