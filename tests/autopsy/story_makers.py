"""Make small stories for tests: plain defaults, and a test names what matters to it.

Laws: (1) no file is read or written; (2) times count in seconds from one noon.
Not here: reading real transcripts (test_reading*.py).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from jackline.autopsy.story import AgentStory, Ending, Evidence, Role, Sighting, Told
from jackline.failures import Failure, Kind, Scope

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


def sighting(
    failure: Failure,
    seconds: float | None = 100,
    *,
    text: str = WALL,
    status: int | None = 429,
    fatal: bool = True,
) -> Sighting:
    at = None if seconds is None else after(seconds)
    return Sighting(at, failure, text, status, f"req_{seconds}", fatal)


def told(text: str, claim: str = "failed", *, is_error: bool = True, teller: str = "run") -> Told:
    return Told(after(200), teller, claim, text, is_error)


def agent(
    name: str,
    *,
    ending: Ending = Ending.FINISHED,
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
    more.setdefault("sightings", [sighting(failure, seconds)])
    return agent(name, ending=Ending.FAILED, ended=seconds, **more)  # type: ignore[arg-type]


def evidence(*stories: AgentStory) -> Evidence:
    return Evidence(list(stories), files_read=len(stories), bytes_read=1_000 * len(stories))
