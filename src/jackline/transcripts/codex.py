"""Read a Codex rollout: the record that Codex saves of one session.

Rules: (1) a turn failed when its `task_complete` has an error, or when there is an `error` event:
the event's name also ends turns that went well; (2) tokens come from running totals, which repeat
and may start again, so only their growth counts.
Not here: Claude Code (transcripts/claude_code.py), what an error means (failures/).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from jackline.transcripts.findings import Findings, UnreadableLines
from jackline.transcripts.records import decode
from jackline.transcripts.story import SHOWN_WORDS, Role, StoryBuilder, TranscriptEnd

CLIENT = "codex"
PROVIDER = "openai"

_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_TURN_ENDS = frozenset({"task_complete", "turn_complete"})


class CodexError(msgspec.Struct):
    """What a failed turn says of itself; the info is a word, or a word with an HTTP status."""

    message: str | None = None
    codex_error_info: Any = None


class TotalUsage(msgspec.Struct):
    """Tokens since the session began."""

    total_tokens: int | None = None


class TokenInfo(msgspec.Struct):
    """What a `token_count` event knows."""

    total_token_usage: TotalUsage | None = None


class PlanWindow(msgspec.Struct):
    """How far a plan's window is used up."""

    used_percent: float | None = None
    window_minutes: int | None = None
    resets_at: int | None = None


class RateLimits(msgspec.Struct):
    """The plan's windows as of the last answer."""

    primary: PlanWindow | None = None
    secondary: PlanWindow | None = None


class CodexPayload(msgspec.Struct):
    """The inner part of any line."""

    type: str = ""
    id: str | None = None
    session_id: str | None = None
    cwd: str | None = None
    cli_version: str | None = None
    thread_source: Any = None
    model: str | None = None
    role: str | None = None
    message: Any = None
    last_agent_message: str | None = None
    error: CodexError | None = None
    codex_error_info: Any = None
    info: TokenInfo | None = None
    thread_token_usage: TotalUsage | None = None
    rate_limits: RateLimits | None = None


class CodexLine(msgspec.Struct):
    """One line of a rollout."""

    type: str = ""
    timestamp: str | None = None
    payload: CodexPayload | None = None


_LINES = msgspec.json.Decoder(CodexLine)


def read_rollout(
    path: Path, lines: Iterable[memoryview], tally: UnreadableLines, *, written: datetime
) -> Findings:
    """The story of the session that the rollout records."""
    rollout = _Rollout(path, written)
    for number, line in enumerate(lines, 1):
        record = decode(_LINES, line)
        if record is None:
            tally.unreadable()
        elif record.payload is not None:
            rollout.take(record.type, record.timestamp, record.payload, number)
    return rollout.findings()


class _Rollout:
    def __init__(self, path: Path, written: datetime) -> None:
        self._recount = StoryBuilder(path, client=CLIENT, provider=PROVIDER, written=written)
        self._spent = 0
        self._has_records = False
        self._limits: RateLimits | None = None

    def take(self, kind: str, stamp: str | None, payload: CodexPayload, number: int) -> None:
        """Add one line to the story."""
        recount = self._recount
        recount.seen(stamp)
        if kind == "session_meta":
            self._identify(payload)
        elif kind == "turn_context":
            recount.story.model = payload.model or recount.story.model
        elif kind == "event_msg":
            self._take_event(stamp, payload, number)
        elif kind == "token_usage_record":
            self._has_records = True
            self._spent_by_now(stamp, payload.thread_token_usage)
        elif kind == "response_item" and payload.type in _CALLS:
            recount.story.tool_calls += 1
            recount.ending = TranscriptEnd.CUT
        elif kind == "response_item" and payload.role == "user":
            recount.ending = TranscriptEnd.CUT

    def _identify(self, payload: CodexPayload) -> None:
        story = self._recount.story
        if story.session_id:
            return
        story.session_id = story.agent_id = payload.id or payload.session_id or ""
        story.cwd = payload.cwd
        story.client_version = payload.cli_version
        if payload.thread_source == "subagent":
            story.role = Role.SUBAGENT
            story.parent_id = payload.session_id

    def _take_event(self, stamp: str | None, payload: CodexPayload, number: int) -> None:
        recount = self._recount
        if payload.type == "token_count":
            self._take_tokens(stamp, payload)
        elif payload.type == "task_started":
            recount.story.turns += 1
            recount.ending = TranscriptEnd.CUT
        elif payload.type in _TURN_ENDS:
            if payload.error is not None:
                self._failed(stamp, payload.error)
            else:
                recount.ending = TranscriptEnd.FINISHED
                recount.story.last_words = (payload.last_agent_message or "")[:SHOWN_WORDS] or None
                recount.story.result_at = f"{recount.story.path}:{number}"
        elif payload.type in ("error", "stream_error"):
            message = payload.message if isinstance(payload.message, str) else None
            error = CodexError(message, payload.codex_error_info)
            self._failed(stamp, error, fatal=payload.type == "error")
        elif payload.type == "turn_aborted":
            recount.ending = TranscriptEnd.CUT

    def _take_tokens(self, stamp: str | None, payload: CodexPayload) -> None:
        self._limits = payload.rate_limits or self._limits
        # Newer rollouts hold records too, whose total does not start again after a resume.
        if payload.info is not None and not self._has_records:
            self._spent_by_now(stamp, payload.info.total_token_usage)

    def _spent_by_now(self, stamp: str | None, usage: TotalUsage | None) -> None:
        total = usage.total_tokens if usage is not None else None
        if total is None or total == self._spent:
            return
        started_again = total < self._spent
        self._recount.cost(None, stamp, total if started_again else total - self._spent)
        self._spent = total

    def _failed(self, stamp: str | None, error: CodexError, *, fatal: bool = True) -> None:
        code, status = _code_and_status(error.codex_error_info)
        self._recount.failed(
            error.message or code or "",
            stamp=stamp,
            status=status,
            headers=_as_headers(self._limits),
            body=None if code is None else {"code": code, "message": error.message},
            fatal=fatal,
        )
        if fatal:
            self._recount.told(
                "codex", "error", error.message or code or "", is_error=True, stamp=stamp
            )

    def findings(self) -> Findings:
        """The story, or nothing when no session was recorded."""
        story = self._recount.finish()
        if story.ending is not TranscriptEnd.FINISHED:
            story.result_at = None
        return Findings(stories=[story] if story.session_id else [])


def _code_and_status(info: object) -> tuple[str | None, int | None]:
    """The word for the error, and the HTTP status if it is told along with it."""
    if isinstance(info, str):
        return info, None
    if isinstance(info, dict):
        for code, detail in info.items():
            status = detail.get("http_status_code") if isinstance(detail, dict) else None
            return str(code), status if isinstance(status, int) else None
    return None, None


def _as_headers(limits: RateLimits | None) -> dict[str, str]:
    """The plan's windows under the names that the server gave them."""
    headers: dict[str, str] = {}
    if limits is None:
        return headers
    for seat, window in (("primary", limits.primary), ("secondary", limits.secondary)):
        if window is not None:
            used = window.used_percent
            told = {
                "used-percent": None if used is None else f"{used:g}",
                "window-minutes": window.window_minutes,
                "reset-at": window.resets_at,
            }
            headers |= {f"x-codex-{seat}-{k}": str(v) for k, v in told.items() if v is not None}
    return headers
