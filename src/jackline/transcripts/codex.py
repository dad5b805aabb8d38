"""Read a Codex rollout: the record that Codex saves of one session.

Rules: (1) a turn failed when its `task_complete` has an error, or when there is an `error` event:
the event's name also ends turns that went well; (2) tokens come from running totals, which repeat
and may start again, so only their growth counts.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from jackline.dialects.token_usage import TokenUsage
from jackline.transcripts.findings import Findings
from jackline.transcripts.records import LineReader, decode
from jackline.transcripts.story import SHOWN_WORDS, Role, StoryBuilder, TranscriptEnd

CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
CALL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_NOTHING = msgspec.Raw(b"")


class CodexError(msgspec.Struct):
    """The error of a turn; the info is a code, or a code with an HTTP status."""

    message: str | None = None
    codex_error_info: Any = None

    def code_and_status(self) -> tuple[str | None, int | None]:
        """The error's code, and the HTTP status if there is one."""
        info = self.codex_error_info
        if isinstance(info, dict) and info:
            code, detail = next(iter(info.items()))
            status = detail.get("http_status_code") if isinstance(detail, dict) else None
            return str(code), status if isinstance(status, int) else None
        return (info if isinstance(info, str) else None), None


class TotalUsage(msgspec.Struct):
    """Tokens since the session began."""

    total_tokens: int | None = None


class TokenInfo(msgspec.Struct):
    """The totals of a `token_count` event."""

    total_token_usage: TotalUsage | None = None


class CodexUsage(msgspec.Struct):
    """The token counts of one model call, or of a whole turn."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> TokenUsage:
        """The counts: what was cached is not counted again as input."""
        return TokenUsage(
            max(0, self.input_tokens - self.cached_input_tokens),
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
        )


class PlanWindow(msgspec.Struct):
    """How much of a plan's window is used."""

    used_percent: float | None = None
    window_minutes: int | None = None
    resets_at: int | None = None


class RateLimits(msgspec.Struct):
    """The plan's windows as of the last answer."""

    primary: PlanWindow | None = None
    secondary: PlanWindow | None = None

    def as_headers(self) -> dict[str, str]:
        """The windows as the server's headers."""
        headers: dict[str, str] = {}
        for name, window in (("primary", self.primary), ("secondary", self.secondary)):
            if window is not None:
                used = window.used_percent
                facts = {
                    "used-percent": None if used is None else f"{used:g}",
                    "window-minutes": window.window_minutes,
                    "reset-at": window.resets_at,
                }
                headers |= {
                    f"x-codex-{name}-{key}": str(value)
                    for key, value in facts.items()
                    if value is not None
                }
        return headers


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
    content: msgspec.Raw = _NOTHING
    call_id: str | None = None
    name: Any = None
    arguments: Any = None
    input: Any = None
    last_agent_message: str | None = None
    error: CodexError | None = None
    codex_error_info: Any = None
    info: TokenInfo | None = None
    usage: msgspec.Raw = _NOTHING
    thread_token_usage: TotalUsage | None = None
    rate_limits: RateLimits | None = None


class CodexLine(msgspec.Struct):
    """One line of a rollout."""

    type: str = ""
    timestamp: str | None = None
    payload: CodexPayload | None = None


ROLLOUT_LINES = msgspec.json.Decoder(CodexLine)


class CodexRollout:
    """Reads one rollout; `written` is when the file was last changed."""

    def __init__(self, path: Path, written: datetime) -> None:
        self._builder = StoryBuilder(path, client="codex", provider="openai", written=written)
        self._spent = 0
        self._has_records = False
        self._limits = RateLimits()

    def read(self, lines: LineReader) -> Findings:
        """The story of the session that the rollout records; none when it records none."""
        for number, line in enumerate(lines, 1):
            record = decode(ROLLOUT_LINES, line)
            if record is None:
                lines.count_invalid()
            elif record.payload is not None:
                self._add(record.type, record.timestamp, record.payload, number)
        story = self._builder.finish()
        if story.ending is not TranscriptEnd.FINISHED:
            story.result_at = None
        return Findings(stories=[story] if story.session_id else [])

    def _add(self, kind: str, stamp: str | None, payload: CodexPayload, number: int) -> None:
        builder = self._builder
        story = builder.story
        builder.saw_line(stamp)
        if kind == "session_meta" and not story.session_id:
            story.session_id = story.agent_id = payload.id or payload.session_id or ""
            story.cwd = payload.cwd
            story.client_version = payload.cli_version
            if payload.thread_source == "subagent":
                story.role = Role.SUBAGENT
                story.parent_id = payload.session_id
        elif kind == "turn_context":
            story.model = payload.model or story.model
        elif kind == "event_msg":
            self._add_event(stamp, payload, number)
        elif kind == "token_usage_record":
            self._has_records = True
            self._add_total(stamp, payload.thread_token_usage)
        elif kind == "response_item":
            is_call = payload.type in CALLS or payload.type == "web_search_call"
            story.tool_calls += is_call
            if is_call or payload.role == "user":
                builder.ending = TranscriptEnd.CUT

    def _add_event(self, stamp: str | None, payload: CodexPayload, number: int) -> None:
        builder = self._builder
        if payload.type == "token_count":
            self._limits = payload.rate_limits or self._limits
            # Newer rollouts also have records, whose total does not start again after a resume.
            if payload.info is not None and not self._has_records:
                self._add_total(stamp, payload.info.total_token_usage)
        elif payload.type == "task_started":
            builder.story.turns += 1
            builder.ending = TranscriptEnd.CUT
        elif payload.type in ("task_complete", "turn_complete"):
            if payload.error is not None:
                self._add_failure(stamp, payload.error)
            else:
                builder.ending = TranscriptEnd.FINISHED
                builder.story.last_words = (payload.last_agent_message or "")[:SHOWN_WORDS] or None
                builder.story.result_at = f"{builder.story.path}:{number}"
        elif payload.type in ("error", "stream_error"):
            message = payload.message if isinstance(payload.message, str) else None
            error = CodexError(message, payload.codex_error_info)
            self._add_failure(stamp, error, fatal=payload.type == "error")
        elif payload.type == "turn_aborted":
            builder.ending = TranscriptEnd.CUT

    def _add_total(self, stamp: str | None, usage: TotalUsage | None) -> None:
        total = usage.total_tokens if usage is not None else None
        if total is None or total == self._spent:
            return
        started_again = total < self._spent
        self._builder.add_cost(None, stamp, total if started_again else total - self._spent)
        self._spent = total

    def _add_failure(self, stamp: str | None, error: CodexError, *, fatal: bool = True) -> None:
        code, status = error.code_and_status()
        text = error.message or code or ""
        self._builder.add_failure(
            text,
            stamp=stamp,
            status=status,
            headers=self._limits.as_headers(),
            body=None if code is None else {"code": code, "message": error.message},
            fatal=fatal,
        )
        if fatal:
            self._builder.add_report("codex", "error", text, is_error=True, stamp=stamp)
