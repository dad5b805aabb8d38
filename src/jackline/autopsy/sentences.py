"""Put the verdict and its parts into sentences that all renderings share.

Rules: (1) pure; (2) the first sentence alone says what stopped how many agents, and until when; (3)
token counts are always "at least".
Not here: the names of failures (failures/sentences.py), layout (text_report.py, html_report.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import ReportedOutcome
from jackline.autopsy.figures import clock, counted, duration, times
from jackline.failures.sentences import name_of
from jackline.transcripts.story import AgentStory, Role

if TYPE_CHECKING:
    from datetime import datetime

    from jackline.autopsy.agent_reports import ReportRow
    from jackline.autopsy.causes import Cause, RetryPattern, Spending


# Status words by which clients call a failed run, too.
FAIR_WORDS = frozenset({"success", "completed", "done"})


def cause_phrase(cause: Cause) -> str:
    """`the account's session limit (HTTP 429), which resets 22:10 Europe/Kiev (19:10 UTC)`."""
    phrase = cause_name(cause)
    if cause.resets_at is not None and not cause.failure.retry_same:
        phrase += f", which resets {clock(cause.resets_at, beside=cause.first_at)}"
    return phrase


def cause_name(cause: Cause) -> str:
    """`the account's session limit (HTTP 429)`."""
    status = "" if cause.status is None else f" (HTTP {cause.status})"
    return name_of(cause.failure) + status


def in_its_zone(cause: Cause, moment: datetime) -> datetime:
    """The moment in the zone that the cause's own words use, so that times can be compared."""
    return moment if cause.resets_at is None else moment.astimezone(cause.resets_at.tzinfo)


def stopped_sentence(causes: list[Cause], stories: list[AgentStory]) -> str:
    """The verdict where at least one cause stopped at least one agent."""
    stopped = sum(len(cause.agents) for cause in causes)
    subject = _subject(stopped, stories)
    first = causes[0]
    if len(causes) == 1:
        return f"{subject} stopped by one cause: {cause_phrase(first)}."
    share = len(first.agents)
    return (
        f"{subject} stopped by {len(causes)} causes; the first, {cause_phrase(first)}, "
        f"stopped {counted(share, 'agent')}."
    )


def _subject(stopped: int, stories: list[AgentStory]) -> str:
    total = len(stories)
    if total == 1:
        return "The session was" if stories[0].role is Role.MAIN else "The agent was"
    if stopped == total:
        return "Both agents were" if total == 2 else f"All {total:,} agents were"
    return f"{stopped:,} of {total:,} agents {'was' if stopped == 1 else 'were'}"


def quiet_sentence(finished: int, unexplained: int, silent: int) -> str:
    """The verdict where no cause stopped anyone."""
    total = finished + unexplained + silent
    if total == 0:
        return "No agent was found in what was read."
    if not unexplained and not silent:
        who = "the one agent" if total == 1 else "both agents" if total == 2 else f"all {total:,}"
        return f"Nothing wrong was found: {who} finished."
    if total == 1:
        how = "failed without a stated reason" if unexplained else "stopped without a word"
        return f"No cause was found: the one agent {how}."
    parts = [f"{finished:,} of {counted(total, 'agent')} finished"]
    if unexplained:
        parts.append(f"{unexplained:,} failed without a stated reason")
    if silent:
        parts.append(f"{silent:,} stopped without a word")
    return f"No cause was found: {', '.join(parts)}."


def retry_sentence(rhythm: RetryPattern) -> str:
    """`It was met 37 times in 34.5 s, every 0.96 s; nothing waited (longest pause 1.1 s).`"""
    met = f"It was met {times(rhythm.count)}"
    if rhythm.span is None or rhythm.median_interval is None or rhythm.longest_pause is None:
        return f"{met}."
    met += f" in {duration(rhythm.span)}"
    if rhythm.count > 2:
        met += f", every {duration(rhythm.median_interval)}"
    longest = f"the longest pause was {duration(rhythm.longest_pause)}"
    return f"{met}. {'Something' if rhythm.waited else 'Nothing'} waited: {longest}."


def spending_sentence(cause: Cause, spending: Spending | None) -> str:
    """What was spent on each side of the point of no return, or why there is none."""
    one = len(cause.agents) == 1
    lost = f"at least {sum(story.tokens for story in cause.agents):,} tokens"
    if spending is None and cause.failure.retry_same:
        return (
            "Repeating could help, so no moment made all further spending vain; the stopped "
            f"{'agent' if one else 'agents'} had spent {lost}."
        )
    if spending is None:
        whose = "this agent's own request was" if one else "these agents' own requests were"
        return f"Only {whose} hopeless; {lost} had been spent on the way."
    point = clock(in_its_zone(cause, spending.point), beside=spending.point, seconds=True)
    late = f"at least {spending.after:,}" if spending.after else "none on record"
    sentence = (
        f"From {point} on, success was impossible: at least {spending.before:,} tokens were spent "
        f"before, and {late} after."
    )
    if spending.started_after:
        were = "was" if spending.started_after == 1 else "were"
        sentence += f" {counted(spending.started_after, 'agent')} {were} still started after it."
    return sentence


def tokens_phrase(agents: int, main: int) -> str:
    """What all agents spent, and what their main sessions spent themselves."""
    beside = f", and {main:,} by the main session itself" if main else ""
    return f"at least {agents:,} tokens{beside}"


def reported_phrase(row: ReportRow) -> str:
    """What somebody was told, in words: the claim, and the error's text where there is one."""
    if row.heard is ReportedOutcome.NOTHING:
        return "nothing"
    claim = f"“{row.claim}”" if row.claim else "an answer"
    if row.is_error and row.claim in FAIR_WORDS:
        claim += ", marked as an error,"
    by = f" by {row.teller}" if row.teller else ""
    return f"{claim}{by}" + (f": “{row.text}”" if row.text else "")


def happened_phrase(row: ReportRow, name: str) -> str:
    """What had really happened, and how far the report was from it."""
    verdicts = {
        ReportedOutcome.THE_CAUSE: "as told",
        ReportedOutcome.ANOTHER_CAUSE: f"not that: {name}",
        ReportedOutcome.AN_ERROR: name,
        ReportedOutcome.SUCCESS: f"stopped by {name}",
        ReportedOutcome.NOTHING: f"stopped by {name}",
    }
    return verdicts[row.heard]
