"""The whole answer of `jackline why` in one value, from which every rendering is made.

Rules: (1) pure: stories and the time are arguments; (2) prompts and answers are left out unless the
user wants them, so that no rendering can show them by mistake; (3) counts add up: every agent has
one fate; (4) advice follows from the failure's fields, never from its text; (5) one command that
resumes per session, run and reset, and only what the clients offer: a workflow run resumes only
inside its own session; (6) a transcript is foreign text and the command is made to be copied: an id
that no client creates, or a folder with control characters, gives no command; (7) a Windows folder
is quoted so that cmd.exe, PowerShell and POSIX shells read the same; where that is impossible, the
report says what to do by hand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import ReportedOutcome, ReportRow, report_rows
from jackline.autopsy.causes import Cause, Miss, RetryPattern, Spending, judge, spenders
from jackline.autopsy.figures import clock, clock_span, counted, iso
from jackline.autopsy.lapsed_caches import LapsedWait, WaitTotals
from jackline.failures import Kind
from jackline.transcripts.story import AgentStory, ReadProblem, Role, TranscriptEnd, TranscriptSet

if TYPE_CHECKING:
    from collections.abc import Sequence


import os
import re
import shlex
from typing import TYPE_CHECKING

from jackline.autopsy.figures import listed
from jackline.failures.sentences import explain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from jackline.autopsy.causes import Cause


_BY_HAND = (
    "go by hand to the folder that it worked in, whose name has characters that a shell would"
    " interpret, and start there"
)
# As clients name sessions and runs; none begins with a dash, which would be an option.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_ON_A_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
# Double quotes protect these characters in all of those shells: no `%` and `!` of cmd.exe, no `$`,
# no back quotes, and none of the characters that PowerShell reads as quotes.
_QUOTABLE = re.compile(r"[\w .,:;+=@~#()\[\]{}'&^\\/-]*")
_ON_WINDOWS = os.name == "nt"


def advice(cause: Cause, *, now: datetime) -> tuple[str, ...]:
    """The steps for this cause."""
    what_it_is, what_helps = explain(cause.failure, now)[:2]
    if cause.resets_at is not None and cause.resets_at <= now:
        passed = f"The reset ({clock(cause.resets_at, beside=now)}) has passed: resume now."
        return (passed, what_it_is)
    if cause.resets_at is not None:
        wait = f"Wait until {clock(cause.resets_at, beside=now)}, then resume."
        return (wait, what_helps, what_it_is)
    if cause.failure.kind is Kind.ACCOUNT_QUOTA:
        return ("Wait for the limit to refill; no text gave a time.", what_helps, what_it_is)
    return (what_helps, what_it_is)


@dataclass(frozen=True, slots=True)
class ResumeOption:
    """One way to resume: a shell command, what to do then, which agents resume, and from when.

    Without a command `then` says what to do instead.
    """

    command: str | None
    then: str | None
    agents: tuple[str, ...]
    not_before: datetime | None

    def heading(self, now: datetime) -> str:
        """`3 agents, from 22:10 UTC:`."""
        when = "now"
        if self.not_before is not None:
            when = f"from {clock(self.not_before, beside=now)}"
        return f"{counted(len(self.agents), 'agent')}, {when}:"

    @property
    def then_text(self) -> str:
        """The step after the command, or in its place."""
        return f"then {self.then}" if self.command else self.then or ""


def resume_options(
    stopped: Iterable[tuple[AgentStory, datetime | None]],
    *,
    now: datetime,
    windows: bool = _ON_WINDOWS,
) -> tuple[ResumeOption, ...]:
    """The ways to resume these agents, each passed with its cause's reset; soonest first.

    `windows` says whether the commands are pasted into a shell of Windows.
    """
    groups: dict[tuple[str | None, str, str | None, Role, datetime | None], list[str]] = {}
    for story, resets_at in stopped:
        if not _ID.fullmatch(story.session_id):
            continue
        is_codex = story.client.startswith("codex")
        client = f"{'codex resume' if is_codex else 'claude --resume'} {story.session_id}"
        command: str | None = client
        # Claude Code looks sessions up by the folder that it is started in.
        if story.cwd and not is_codex:
            is_absolute = story.cwd.startswith(("/", "\\\\")) or _ON_A_DRIVE.match(story.cwd)
            if not is_absolute or not story.cwd.isprintable():
                continue  # no system names a folder so
            enter = _enter_command(story.cwd, windows=windows)
            command = None if enter is None else f"{enter} && {client}"
        not_before = resets_at if resets_at is not None and resets_at > now else None
        run_id = story.run_id if story.run_id and _ID.fullmatch(story.run_id) else None
        key = (command, client, run_id, story.role, not_before)
        groups.setdefault(key, []).append(story.agent_id)
    options = []
    for (command, client, run_id, role, not_before), agents in groups.items():
        steps = [] if command else [f"{_BY_HAND}: {client}"]
        if role is Role.WORKFLOW and run_id:
            steps.append(
                f"ask it to run the workflow again with resumeFromRunId: '{run_id}' "
                "(only inside this session; finished agents answer from the journal)"
            )
        elif role is Role.SUBAGENT:
            steps.append(
                f"ask it to use SendMessage to {listed(agents, most=6)}:"
                " an agent goes on from its own transcript"
            )
        options.append(ResumeOption(command, "; ".join(steps) or None, tuple(agents), not_before))
    return tuple(sorted(options, key=lambda option: option.not_before or now))


def _enter_command(folder: str, *, windows: bool) -> str | None:
    """The command that enters the folder; None when no quoting is safe in every shell."""
    if folder.startswith("/") and not windows:
        return f"cd -- {shlex.quote(folder)}"
    if folder.startswith("\\") or not _QUOTABLE.fullmatch(folder):
        return None  # a share has no drive, and shells read its backslashes differently
    if folder.endswith("\\"):
        # In a POSIX shell it would escape the quote after it.
        folder = folder[:-1]
        folder += "/" if folder.endswith(":") else ""
    if "\\\\" in folder or folder.endswith("\\"):
        return None
    # Unlike `cd` it changes the drive in cmd.exe, and all of these shells have it.
    return f'pushd "{folder}"'


SCHEMA = "jackline.why/2"
"""The name of the JSON document; a change that breaks its readers changes it."""
# A transcript that grew this recently may belong to an agent that still works.
_RECENT = timedelta(minutes=5)


class Fate(StrEnum):
    """How an agent ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    UNEXPLAINED = "failed"
    CUT = "cut off"
    RUNNING = "running"

    @classmethod
    def without_cause(cls, story: AgentStory, now: datetime) -> Fate:
        """How an agent ended that no cause stopped."""
        if story.ending is TranscriptEnd.FINISHED:
            return cls.FINISHED
        if story.ending is TranscriptEnd.FAILED:
            return cls.UNEXPLAINED
        recent = story.ended_at is not None and timedelta(0) <= now - story.ended_at < _RECENT
        return cls.RUNNING if recent else cls.CUT


@dataclass(frozen=True, slots=True)
class AgentFate:
    """One agent and how it ended; `cause` counts from 1 in the order of `WhyReport.causes`."""

    story: AgentStory
    fate: Fate
    cause: int | None
    label: str | None
    last_words: str | None

    def to_json(self) -> dict[str, object]:
        """The agent as the JSON document shows it, with its content where that may be shown."""
        story = self.story
        facts: dict[str, object] = {
            "agent_id": story.agent_id,
            "session_id": story.session_id,
            "parent_id": story.parent_id,
            "run_id": story.run_id,
            "role": story.role.value,
            "agent_type": story.agent_type,
            "client": story.client,
            "client_version": story.client_version,
            "model": story.model,
            "fate": self.fate.value,
            "cause": self.cause,
            "started_at": iso(story.started_at),
            "ended_at": iso(story.ended_at),
            "turns": story.turns,
            "tool_calls": story.tool_calls,
            "tokens_at_least": story.tokens,
            "result_at": story.result_at,
            "transcript": str(story.path),
            "failures": [
                {
                    "at": iso(seen.at),
                    "kind": seen.failure.kind.value,
                    "sub": seen.failure.sub,
                    "status": seen.status,
                    "text": seen.text,
                    "request_id": seen.request_id,
                    "fatal": seen.fatal,
                }
                for seen in story.failures
            ],
        }
        content = {"label": self.label, "last_words": self.last_words}
        return {**facts, **{key: value for key, value in content.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class CauseReport:
    """Everything that the report says about one cause."""

    rank: int
    cause: Cause
    name: str
    texts: tuple[tuple[str, int], ...]
    pattern: RetryPattern
    spending: Spending | None
    reported: tuple[ReportRow, ...]
    misses: tuple[tuple[Miss, int], ...]
    advice: tuple[str, ...]

    @classmethod
    def of(
        cls, cause: Cause, rank: int, stories: Sequence[AgentStory], now: datetime
    ) -> CauseReport:
        """The report on one cause among all agents."""
        texts = Counter(" ".join(o.seen.text.split()) for o in cause.occurrences)
        texts.pop("", None)
        misses: Counter[Miss] = Counter()
        if cause.failure.kind is Kind.MISSING_STRUCTURED_OUTPUT:
            misses.update(Miss.of(o) for o in cause.occurrences if o.ended)
        return cls(
            rank=rank,
            cause=cause,
            name=cause.name,
            texts=tuple(sorted(texts.items(), key=lambda item: (-item[1], item[0]))),
            pattern=RetryPattern.of(cause),
            spending=Spending.around(cause, stories),
            reported=report_rows(cause.agents, cause.failure.kind, now=now),
            misses=tuple(sorted(misses.items(), key=lambda item: (-item[1], item[0]))),
            advice=advice(cause, now=now),
        )

    def facts(self) -> list[tuple[str, str]]:
        """When, how often, at what cost and how it was missed, each with its heading."""
        cause, pattern = self.cause, self.pattern
        pairs = []
        if pattern.first is not None and pattern.last is not None:
            pairs.append(("When", clock_span(cause.in_own_zone(pattern.first), pattern.last)))
        pairs.append(("How often", str(pattern)))
        pairs.append(("Spent", self._spending_sentence()))
        for miss, count in self.misses:
            pairs.append(("How missed", f"{counted(count, 'agent')}: {miss}"))
        return pairs

    def _spending_sentence(self) -> str:
        """What was spent before and after the first refusal, or why that does not matter."""
        cause, spending = self.cause, self.spending
        one = len(cause.agents) == 1
        lost = f"at least {sum(story.tokens for story in cause.agents):,} tokens"
        if spending is None and cause.failure.retry_same:
            return (
                "A retry could succeed, so no moment made all further spending useless; the"
                f" stopped {'agent' if one else 'agents'} had spent {lost}."
            )
        if spending is None:
            whose = "this agent's own request was" if one else "these agents' own requests were"
            return f"Only {whose} hopeless; {lost} had been spent before."
        point = clock(cause.in_own_zone(spending.point), beside=spending.point, seconds=True)
        late = f"at least {spending.after:,}" if spending.after else "none on record"
        sentence = (
            f"From {point} on, success was impossible: at least {spending.before:,} tokens were"
            f" spent before, and {late} after."
        )
        if spending.started_after:
            were = "was" if spending.started_after == 1 else "were"
            sentence += (
                f" {counted(spending.started_after, 'agent')} {were} still started after it."
            )
        return sentence

    def to_json(self) -> dict[str, object]:
        """The cause as the JSON document shows it; durations in seconds."""
        cause, pattern, spending = self.cause, self.pattern, self.spending
        durations = {
            name: None if value is None else round(value.total_seconds(), 3)
            for name, value in (
                ("span_s", pattern.span),
                ("median_interval_s", pattern.median_interval),
                ("longest_pause_s", pattern.longest_pause),
            )
        }
        return {
            "rank": self.rank,
            "name": self.name,
            "failure": cause.failure.to_json(),
            "evidence": list(cause.failure.evidence),
            "status": cause.status,
            "resets_at": iso(cause.resets_at),
            "agents_stopped": len(cause.agents),
            "agents": [story.agent_id for story in cause.agents],
            "texts": [{"text": text, "count": count} for text, count in self.texts],
            "occurred": {
                "times": pattern.count,
                "first_at": iso(pattern.first),
                "last_at": iso(pattern.last),
                **durations,
                "anything_waited": pattern.waited,
            },
            "spending": None
            if spending is None
            else {
                "impossible_from": iso(spending.point),
                "tokens_before_at_least": spending.before,
                "tokens_after_at_least": spending.after,
                "agents_started_after": spending.started_after,
            },
            "stopped_agents_tokens_at_least": sum(story.tokens for story in cause.agents),
            "missed": [{"how": miss.value, "agents": count} for miss, count in self.misses],
            "reported": [row.to_json() for row in self.reported],
            "what_to_do": list(self.advice),
        }


@dataclass(frozen=True, slots=True)
class WhyReport:
    """The answer: a verdict, its causes, every agent's fate, and what could not be read."""

    verdict: str
    now: datetime
    causes: tuple[CauseReport, ...]
    survived: tuple[CauseReport, ...]
    agents: tuple[AgentFate, ...]
    reported_to_user: tuple[ReportRow, ...]
    resume_options: tuple[ResumeOption, ...]
    problems: tuple[ReadProblem, ...]
    files_read: int
    bytes_read: int
    synthetic: bool = False
    lapsed_waits: tuple[LapsedWait, ...] = ()
    """Calls of these sessions that a gateway held until their prompt caches had lapsed."""

    def having(self, *fates: Fate) -> tuple[AgentFate, ...]:
        """The agents with one of these fates."""
        return tuple(agent for agent in self.agents if agent.fate in fates)

    @property
    def tokens(self) -> int:
        """All tokens of the spenders, as a lower bound."""
        return sum(story.tokens for story in spenders([agent.story for agent in self.agents]))

    @property
    def main_tokens(self) -> int:
        """What main sessions spent themselves, where their agents are counted separately."""
        return sum(agent.story.tokens for agent in self.agents) - self.tokens

    @property
    def tokens_text(self) -> str:
        """What all agents spent, and what their main sessions spent themselves."""
        main = self.main_tokens
        beside = f", and {main:,} by the main session itself" if main else ""
        return f"at least {self.tokens:,} tokens{beside}"

    def reported_rows(self) -> list[tuple[ReportRow, str, bool]]:
        """Each report with what really happened, and whether it misleads its reader."""
        stopped = f"{len(self.having(Fate.STOPPED)):,} of {counted(len(self.agents), 'agent')}"
        to_user = self.reported_to_user if self.causes else ()
        rows = [
            (row, f"{stopped} stopped", row.outcome is ReportedOutcome.SUCCESS) for row in to_user
        ]
        return rows + [
            (row, row.actual_text(described.name), row.outcome.is_wrong)
            for described in self.causes
            for row in described.reported
        ]

    def result_files(self) -> list[tuple[str, int]]:
        """The files that hold the finished agents' results, with how many each."""
        files: Counter[str] = Counter()
        for agent in self.having(Fate.FINISHED):
            place = agent.story.result_at or str(agent.story.path)
            path, _, line = place.rpartition(":")
            files[path if line.isdigit() and path else place] += 1
        return files.most_common()

    def to_json(self) -> dict[str, object]:
        """The document of `jackline why --json`: times in ISO 8601, tokens as lower bounds."""
        totals = WaitTotals.of(self.lapsed_waits)
        return {
            "schema": SCHEMA,
            "synthetic": self.synthetic,
            "verdict": self.verdict,
            "now": iso(self.now),
            "agents_total": len(self.agents),
            "agents_by_fate": dict(Counter(agent.fate.value for agent in self.agents)),
            "tokens_at_least": self.tokens,
            "main_session_tokens_at_least": self.main_tokens,
            "causes": [described.to_json() for described in self.causes],
            "survived": [described.to_json() for described in self.survived],
            "reported_to_user": [row.to_json() for row in self.reported_to_user],
            "prompt_caches": None
            if totals is None
            else {
                "calls": totals.calls,
                "longest_wait_s": round(totals.longest_wait, 3),
                "tokens_written_again": totals.tokens,
                "dollars": totals.dollars,
                "dollars_warm": totals.dollars_warm,
            },
            "resume": [
                {
                    "command": option.command,
                    "then": option.then,
                    "agents": list(option.agents),
                    "not_before": iso(option.not_before),
                }
                for option in self.resume_options
            ],
            "agents": [agent.to_json() for agent in self.agents],
            "looked_at": {"files": self.files_read, "bytes": self.bytes_read},
            "problems": [problem.to_json() for problem in self.problems],
        }


def build(
    evidence: TranscriptSet,
    *,
    now: datetime,
    show_content: bool = False,
    synthetic: bool = False,
    waits: Sequence[LapsedWait] = (),
) -> WhyReport:
    """The report on everything that was read; `waits` is what a gateway's journal adds to it."""
    stories = sorted(
        evidence.stories,
        key=lambda s: (
            s.session_id,
            s.role is not Role.MAIN,
            0.0 if s.started_at is None else s.started_at.timestamp(),
            s.agent_id,
        ),
    )
    judgement = judge(stories, now=now)
    ranks = {id(s): rank for rank, cause in enumerate(judgement.causes, 1) for s in cause.agents}
    agents = tuple(
        AgentFate(
            story,
            Fate.STOPPED if id(story) in ranks else Fate.without_cause(story, now),
            ranks.get(id(story)),
            story.label if show_content else None,
            story.last_words if show_content else None,
        )
        for story in stories
    )
    count = Counter(agent.fate for agent in agents)
    silent = count[Fate.CUT] + count[Fate.RUNNING]
    stopped = [(story, cause.resets_at) for cause in judgement.causes for story in cause.agents]
    affected = {story.session_id for story, _ in stopped}
    others = [(a.story, None) for a in agents if a.fate in {Fate.CUT, Fate.UNEXPLAINED}]
    # A main session that a cause stopped is reported with that cause.
    informed = [
        a.story
        for a in agents
        if a.story.role is Role.MAIN and a.cause is None and a.story.session_id in affected
    ]
    return WhyReport(
        verdict=judgement.verdict(stories, count[Fate.UNEXPLAINED], silent),
        now=now,
        causes=tuple(
            CauseReport.of(cause, rank, stories, now)
            for rank, cause in enumerate(judgement.causes, 1)
        ),
        survived=tuple(
            CauseReport.of(cause, rank, stories, now)
            for rank, cause in enumerate(judgement.survived, 1)
        ),
        agents=agents,
        reported_to_user=report_rows(
            informed, None, now=now, hide=[s.label for s in stories if s.label]
        ),
        resume_options=resume_options([*stopped, *others], now=now),
        problems=tuple(evidence.problems),
        files_read=evidence.files_read,
        bytes_read=evidence.bytes_read,
        synthetic=synthetic,
        lapsed_waits=tuple(waits),
    )
