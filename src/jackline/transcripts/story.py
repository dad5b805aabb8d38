"""Define the story of one agent, and build it while the lines of its transcript are read.

Rules: (1) a story holds ids, times, counts and error texts; prompts, answers and tool output only
in `label` and `last_words`, which reports hide by default; (2) keys and tokens in an error text are
blanked before anything else sees them; (3) times have a zone; (4) token counts are lower bounds,
because transcripts under-report input tokens; each answer counts once, by its id, and its last line
wins; (5) a line is an error by its marks, never by its text, which only `classify` reads; (6) the
last line that matters decides how the agent ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from jackline.failures import Failure, Json, Kind, Observation, Where, classify
from jackline.failures.wording import redact

SHOWN_TEXT = 300
SHOWN_WORDS = 2_000
# Long enough to contain the error's text; reader.py cuts it to what is shown.
LONGEST_REPORT = 4_000


class Role(StrEnum):
    """The agent's place in its session."""

    MAIN = "main"
    SUBAGENT = "subagent"
    WORKFLOW = "workflow"


class TranscriptEnd(StrEnum):
    """How the transcript ends."""

    FINISHED = "finished"
    FAILED = "failed"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """One classified failure in a transcript; `fatal` is False for a retry of the client."""

    at: datetime | None
    failure: Failure
    text: str
    status: int | None = None
    request_id: str | None = None
    fatal: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text, LONGEST_REPORT))


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What was reported about an agent, to its parent or to the user.

    `claim` is the reporter's own status ("completed", "success", "failed", "error").
    """

    at: datetime | None
    reporter: str
    claim: str
    text: str
    is_error: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text, LONGEST_REPORT))


@dataclass(slots=True)
class AgentStory:
    """Everything one transcript contains about one agent.

    `spent` maps whole epoch seconds to tokens, so that spending can be split at any moment.
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
        """The tokens on record, as a lower bound."""
        return sum(self.spent.values())


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """Something that could not be read."""

    path: Path
    what: str
    count: int = 1

    def to_json(self) -> dict[str, object]:
        """The problem as every document shows it."""
        return {"path": str(self.path), "what": self.what, "count": self.count}


@dataclass(slots=True)
class TranscriptSet:
    """All that was read: the stories, the problems, and how much was read."""

    stories: list[AgentStory] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)
    files_read: int = 0
    bytes_read: int = 0


def parse_time(stamp: str | None) -> datetime | None:
    """The time of a stamp; one without a zone is in UTC, as all clients write it."""
    if stamp is None:
        return None
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def time_of_epoch(seconds: float | None) -> datetime | None:
    """The time so many seconds after 1970; None where the calendar has no such time."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


class StoryBuilder:
    """Builds one agent's story, line by line.

    `written` is when the file was last changed: the best guess for lines without a time.
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
        self._retries: list[tuple[str | None, int | None, str | None]] = []

    def saw_line(self, stamp: str | None) -> None:
        """A line with this time belongs to the story."""
        self.has_lines = True
        if stamp is not None:
            self._last = stamp
            if self._first is None:
                self._first = stamp

    def now(self, at: datetime | None = None) -> datetime:
        """This time, or that of the latest line, in the host's zone."""
        at = at or parse_time(self._last) or self._written
        try:
            return at.astimezone()
        except (ValueError, OverflowError, OSError):
            # Years at the ends of the calendar have no local time everywhere.
            return at

    def add_cost(self, answer: str | None, stamp: str | None, tokens: int) -> None:
        """Count an answer's tokens; a later line about the same answer replaces them."""
        if self._retries:
            self._settle_retries()
        self._costs[answer or f"without id, {len(self._costs)}"] = (stamp or self._last, tokens)

    def add_failure(
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
        """Add a failure, classified as of its own time.

        Without `sure`, `classify` decides whether it is a failure at all.
        """
        if fatal:
            self._settle_retries(text, status)
        at = parse_time(stamp or self._last)
        seen = Observation(
            Where.TRANSCRIPT, self._provider, status, headers or {}, body, text or None
        )
        failure = classify(seen, now=self.now(at or self._written))
        if not sure and failure.kind is Kind.NOT_A_FAILURE:
            return
        self.story.failures.append(
            SeenFailure(at, failure, text[:SHOWN_TEXT], status, request_id, fatal)
        )
        if fatal:
            self.ending = TranscriptEnd.FAILED

    @property
    def retrying(self) -> bool:
        """Whether there are retries that nothing has explained yet."""
        return bool(self._retries)

    def add_retry(self, stamp: str | None, status: int | None, tag: str | None) -> None:
        """Add a retry of which only the status and the client's tag are known."""
        self._retries.append((stamp or self._last, status, tag))

    def _settle_retries(self, text: str = "", status: int | None = None) -> None:
        """Add the retries as failures; the error they led to, if any, gives them its text."""
        retries, self._retries = self._retries, []
        for stamp, retry_status, tag in retries:
            same = bool(text) and (status == retry_status or None in (status, retry_status))
            self.add_failure(
                text if same else "",
                stamp=stamp,
                status=retry_status or (status if same else None),
                body=None if same else {"error": tag},
                fatal=False,
                sure=False,
            )

    def add_report(
        self, reporter: str, claim: str, text: str, *, is_error: bool, stamp: str | None = None
    ) -> None:
        """Add what was reported about this agent."""
        at = parse_time(stamp or self._last)
        self.story.reports.append(AgentReport(at, reporter, claim, text[:SHOWN_TEXT], is_error))

    def finish(self) -> AgentStory:
        """The whole story, after the last line."""
        self._settle_retries()
        story = self.story
        story.started_at = parse_time(self._first)
        story.ended_at = parse_time(self._last)
        story.ending = self.ending
        story.turns = story.turns or len(self._costs)
        hours: dict[str, int] = {}
        for stamp, tokens in self._costs.values():
            if tokens:
                second = self._second_of(stamp, hours)
                story.spent[second] = story.spent.get(second, 0) + tokens
        return story

    def _second_of(self, stamp: str | None, hours: dict[str, int]) -> int:
        """The epoch second of a stamp; a parsed hour in UTC serves all stamps within it."""
        in_utc = stamp is not None and stamp.endswith("Z")
        if stamp is not None and in_utc:
            hour = hours.get(stamp[:13])
            if hour is not None and stamp[14:16].isdecimal() and stamp[17:19].isdecimal():
                return hour + 60 * int(stamp[14:16]) + int(stamp[17:19])
        second = int((parse_time(stamp) or self._written).timestamp())
        if stamp is not None and in_utc:
            hours[stamp[:13]] = second - second % 3_600
        return second
