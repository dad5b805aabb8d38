"""Make small stories for tests: plain defaults, and a test names what matters to it.

Rules: (1) no file is read or written; (2) times count in seconds from one noon.
Not here: reading real transcripts (tests/transcripts/).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from jackline.failures import Failure, Kind, Scope
from jackline.transcripts.story import (
    AgentReport,
    AgentStory,
    Role,
    SeenFailure,
    TranscriptEnd,
    TranscriptSet,
)

NOON = datetime(2026, 6, 18, 12, 0, 0, tzinfo=UTC)
KIEV = ZoneInfo("Europe/Kiev")
RESET = datetime(2026, 6, 18, 22, 10, tzinfo=KIEV)
WALL = "You've hit your session limit · resets 10:10pm (Europe/Kiev)"
MISSED = "agent({schema}): subagent completed without calling StructuredOutput"


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def quota(resets_at: datetime | None = RESET, sub: str | None = "session") -> Failure:
    return Failure(Kind.ACCOUNT_QUOTA, sub, Scope.ACCOUNT, False, True, resets_at=resets_at)


def overload() -> Failure:
    return Failure(Kind.OVERLOADED, None, Scope.UPSTREAM, True, True)


def refused_connection() -> Failure:
    return Failure(Kind.NETWORK_EDGE, "refused", Scope.UPSTREAM, True, True)


def too_long() -> Failure:
    return Failure(Kind.INVALID_REQUEST, "context_too_long", Scope.REQUEST, False, True)


def no_output(sub: str | None = "absent") -> Failure:
    return Failure(Kind.MISSING_STRUCTURED_OUTPUT, sub, Scope.REQUEST, True, False)


def seen_failure(
    failure: Failure,
    seconds: float | None = 100,
    *,
    text: str = WALL,
    status: int | None = 429,
    fatal: bool = True,
) -> SeenFailure:
    at = None if seconds is None else after(seconds)
    return SeenFailure(at, failure, text, status, f"req_{seconds}", fatal)


def agent_report(
    text: str, claim: str = "failed", *, is_error: bool = True, reporter: str = "run"
) -> AgentReport:
    return AgentReport(after(200), reporter, claim, text, is_error)


def agent(
    name: str,
    *,
    ending: TranscriptEnd = TranscriptEnd.FINISHED,
    role: Role = Role.SUBAGENT,
    begun: float = 0,
    ended: float = 100,
    **more: object,
) -> AgentStory:
    story = AgentStory(
        agent_id=name,
        session_id="5e55-1on",
        role=role,
        client="claude-code",
        path=Path(f"agent-{name}.jsonl"),
        started_at=after(begun),
        ended_at=after(ended),
        ending=ending,
    )
    for key, value in more.items():
        setattr(story, key, value)
    return story


def stopped(name: str, failure: Failure, seconds: float = 100, **more: object) -> AgentStory:
    more.setdefault("failures", [seen_failure(failure, seconds)])
    return agent(name, ending=TranscriptEnd.FAILED, ended=seconds, **more)  # type: ignore[arg-type]


def evidence(*stories: AgentStory) -> TranscriptSet:
    return TranscriptSet(list(stories), files_read=len(stories), bytes_read=1_000 * len(stories))
