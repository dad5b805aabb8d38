"""Define the story of one agent, and build it while the lines of its transcript come by.

Rules: (1) a story holds ids, times, counts and error texts; prompts, answers and tool output only
in `label` and `last_words`, which reports hide by default; (2) keys and tokens in an error text are
blanked before anything else sees them; (3) times have a zone; (4) token counts are lower bounds,
because transcripts under-report input tokens; each answer counts once, by its id, and its last line
wins; (5) a line is an error by its marks, never by its words: the words go to `classify`; (6) the
last line that matters decides how the agent ended.
Not here: line formats (transcripts/claude_code.py, transcripts/codex.py), other agents (reader.py),
judging (autopsy/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from jackline.failures import Failure, Json, Kind, Observation, Where, classify
from jackline.failures.wording import redact


class Role(StrEnum):
    """Which seat the agent had."""

    MAIN = "main"
    SUBAGENT = "subagent"
    WORKFLOW = "workflow"


class TranscriptEnd(StrEnum):
    """How the transcript stops."""

    FINISHED = "finished"
    FAILED = "failed"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """One failure as the transcript shows it, classified.

    `text` is the error's own words, at most 300 characters. `fatal` is False for a retry that the
    client reported and went on from.
    """

    at: datetime | None
    failure: Failure
    text: str
    status: int | None = None
    request_id: str | None = None
    fatal: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text))


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What someone was told about an agent: a parent by a tool result, a user by a last line.

    `claim` is the reporter's own verdict word ("completed", "success", "failed", "error").
    """

    at: datetime | None
    reporter: str
    claim: str
    text: str
    is_error: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text))


@dataclass(slots=True)
class AgentStory:
    """Everything one transcript tells about one agent.

    `spent` maps whole epoch seconds to tokens, so that spending before and after any moment can be
    told apart without keeping every message.
    """

    agent_id: str
    session_id: str
    role: Role
    client: str
    path: Path
    parent_id: str | None = None
    run_id: str | None = None
    agent_type: str | None = None
    model: str | None = None
    client_version: str | None = None
    cwd: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    turns: int = 0
    tool_calls: int = 0
    spent: dict[int, int] = field(default_factory=dict)
    failures: list[SeenFailure] = field(default_factory=list)
    reports: list[AgentReport] = field(default_factory=list)
    ending: TranscriptEnd = TranscriptEnd.CUT
    result_at: str | None = None
    label: str | None = None
    last_words: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that the transcript admits to; the truth is at least this."""
        return sum(self.spent.values())


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """Something that could not be read, told at the end of every report."""

    path: Path
    what: str
    count: int = 1


@dataclass(slots=True)
class TranscriptSet:
    """All that was read: the stories, the problems, and how much was looked at."""

    stories: list[AgentStory] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)
    files_read: int = 0
    bytes_read: int = 0


SHOWN_TEXT = 300
SHOWN_WORDS = 2_000


def moment(stamp: str | None) -> datetime | None:
    """The time that a stamp names; one without a zone is in UTC, as all clients write it."""
    if stamp is None:
        return None
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def moment_of_epoch(seconds: float | None) -> datetime | None:
    """The time so many seconds after 1970."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


class StoryBuilder:
    """One agent's story in the making.

    `written` is when the file was last changed: the best guess for lines that bear no time.
    """

    def __init__(
        self, path: Path, *, client: str, provider: str, written: datetime, role: Role = Role.MAIN
    ) -> None:
        self.story = AgentStory("", "", role, client, path)
        self.ending = TranscriptEnd.CUT
        self.has_lines = False
        self._provider = provider
        self._written = written
        self._first: str | None = None
        self._last: str | None = None
        self._costs: dict[str, tuple[str | None, int]] = {}
        self._wordless: list[tuple[str | None, int | None, str | None]] = []

    def seen(self, stamp: str | None) -> None:
        """Note that something stands at this time."""
        self.has_lines = True
        if stamp is not None:
            self._last = stamp
            if self._first is None:
                self._first = stamp

    def now(self) -> datetime:
        """The time of the latest line, for judging what stands there."""
        return _in_host_zone(moment(self._last) or self._written)

    def cost(self, answer: str | None, stamp: str | None, tokens: int) -> None:
        """Note what an answer cost; a later line about the same answer replaces this one."""
        if self._wordless:
            self._settle_retries()
        self._costs[answer or f"without id, {len(self._costs)}"] = (stamp or self._last, tokens)

    def failed(
        self,
        text: str,
        *,
        stamp: str | None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: Json = None,
        request_id: str | None = None,
        fatal: bool = True,
        sure: bool = True,
    ) -> None:
        """Note a failure, classified as of the time it stands at.

        Where it is not `sure` that this is a failure at all, `classify` has the last word.
        """
        if fatal:
            self._settle_retries(text, status)
        at = moment(stamp or self._last)
        seen = Observation(
            Where.TRANSCRIPT, self._provider, status, headers or {}, body, text or None
        )
        failure = classify(seen, now=_in_host_zone(at or self._written))
        if not sure and failure.kind is Kind.NOT_A_FAILURE:
            return
        self.story.failures.append(
            SeenFailure(at, failure, text[:SHOWN_TEXT], status, request_id, fatal)
        )
        if fatal:
            self.ending = TranscriptEnd.FAILED

    @property
    def retrying(self) -> bool:
        """Whether retries were noted that nothing has explained yet."""
        return bool(self._wordless)

    def retried(self, stamp: str | None, status: int | None, tag: str | None) -> None:
        """Note a retry of which only the status and the client's tag are told."""
        self._wordless.append((stamp or self._last, status, tag))

    def _settle_retries(self, words: str = "", status: int | None = None) -> None:
        """Note the wordless retries; the error they led to, if it did, speaks for them."""
        waiting, self._wordless = self._wordless, []
        for stamp, retry_status, tag in waiting:
            same = bool(words) and (status == retry_status or None in (status, retry_status))
            self.failed(
                words if same else "",
                stamp=stamp,
                status=retry_status or (status if same else None),
                body=None if same else {"error": tag},
                fatal=False,
                sure=False,
            )

    def told(
        self, reporter: str, claim: str, text: str, *, is_error: bool, stamp: str | None = None
    ) -> None:
        """Note what someone was told about this agent."""
        at = moment(stamp or self._last)
        self.story.reports.append(AgentReport(at, reporter, claim, text[:SHOWN_TEXT], is_error))

    def finish(self) -> AgentStory:
        """The whole story, once the last line went by."""
        self._settle_retries()
        story = self.story
        story.started_at = moment(self._first)
        story.ended_at = moment(self._last)
        story.ending = self.ending
        story.turns = story.turns or len(self._costs)
        story.spent = _by_second(self._costs.values(), otherwise=int(self._written.timestamp()))
        return story


def _by_second(costs: Iterable[tuple[str | None, int]], *, otherwise: int) -> dict[int, int]:
    """Tokens by whole seconds since 1970."""
    spent: dict[int, int] = {}
    hours: dict[str, int] = {}
    for stamp, tokens in costs:
        if tokens:
            second = otherwise if stamp is None else _second_of(stamp, hours, otherwise)
            spent[second] = spent.get(second, 0) + tokens
    return spent


def _second_of(stamp: str, hours: dict[str, int], otherwise: int) -> int:
    """The second that a stamp names; an hour in UTC, once parsed, serves all stamps within it."""
    in_utc = stamp.endswith("Z")
    hour = hours.get(stamp[:13]) if in_utc else None
    if hour is not None and stamp[14:16].isdecimal() and stamp[17:19].isdecimal():
        return hour + 60 * int(stamp[14:16]) + int(stamp[17:19])
    at = moment(stamp)
    if at is None:
        return otherwise
    second = int(at.timestamp())
    if in_utc:
        hours[stamp[:13]] = second - second % 3_600
    return second


def _in_host_zone(at: datetime) -> datetime:
    try:
        return at.astimezone()
    except (ValueError, OverflowError, OSError):
        # Years at the ends of the calendar have no local time everywhere.
        return at
