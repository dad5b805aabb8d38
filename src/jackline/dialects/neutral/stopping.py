"""Say in Anthropic's words why an answer ended.

Laws: (1) an answer with calls that ended by itself waits for their results, whatever the server
called it; (2) what ended an answer early is never told as an end by itself.
Not here: what a client makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.dialects.neutral.account import Notes, shown

_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "completed": "end_turn",
    "tool_calls": "end_turn",
    "function_call": "end_turn",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}


def stop_reason(told: str | None, *, calls: bool, refused: bool, notes: Notes) -> str:
    """Anthropic's name for the end of an answer."""
    reason = _REASONS.get(told or "")
    if reason is None:
        notes.add("finish_reason", f"{shown(told or 'nothing')} is not known, and told as an end")
        reason = "end_turn"
    if reason != "end_turn":
        return reason
    if refused:
        return "refusal"
    return "tool_use" if calls else "end_turn"
