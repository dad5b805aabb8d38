"""Read a whole answer of OpenAI's Responses, and tell it as Anthropic's message.

Laws: (1) nothing in an answer raises: what is no answer becomes an error document; (2) items that
have no counterpart are noted by their type.
Not here: streams (stream.py), writing the message (neutral/answer.py).
"""

from __future__ import annotations

from jackline.dialects.neutral.account import (
    CannotSayError,
    Fields,
    Translated,
    shown,
)
from jackline.dialects.neutral.answer import NOT_TOLD, MessageBuilder
from jackline.dialects.neutral.ids import message_id
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.neutral.stopping import stop_reason
from jackline.dialects.neutral.usage import foreign_usage
from jackline.dialects.neutral.whole import read_whole
from jackline.dialects.tokens_used import TokensUsed

_ENDED = ("completed", "incomplete")


def from_responses(body: bytes, face: AnswerAs) -> Translated:
    """The message; with `is_error` when the response failed, or the body is no response."""
    return read_whole(body, face, _read, "whole response")


def _read(top: Fields, body: bytes, face: AnswerAs) -> Translated:
    notes = top.notes
    status = top.text("status") or "completed"
    if status not in _ENDED:
        raise CannotSayError("status", shown(status))
    builder = MessageBuilder(message_id(top.text("id") or "", body), face, notes)
    items = top.items("output")
    for place, item in enumerate(items):
        _read_item(Fields(item, f"output[{place}]", notes), builder)
    details = top.inner("incomplete_details")
    ended = (details.text("reason") if details else None) or status
    reason = stop_reason(ended, calls=builder.calls, refused=builder.refused, notes=notes)
    # All other fields repeat the request, or frame the answer.
    return builder.done(reason, None, foreign_usage(TokensUsed(), top.raw("usage")))


def _read_item(item: Fields, builder: MessageBuilder) -> None:
    match item.text("type"):
        case "message":
            for place, raw in enumerate(item.items("content")):
                _read_part(Fields(raw, f"{item.at}.content[{place}]", item.notes), builder)
        case "function_call":
            builder.call(
                item.text("call_id") or item.text("id") or "",
                item.needed_text("name"),
                item.text("arguments") or "",
                item.path("arguments"),
            )
        case "reasoning":
            summary = item.items("summary")
            for name, parts in (("summary", summary), ("content", item.items("content"))):
                for place, raw in enumerate(parts):
                    part = Fields(raw, f"{item.at}.{name}[{place}]", item.notes)
                    builder.reasoning(part.text("text") or "", part.at)
            encrypted = item.text("encrypted_content")
            if not builder.thoughts.thought(item.text("id"), summary, encrypted) and encrypted:
                item.notes.add(item.path("encrypted_content"), NOT_TOLD)
        case other:
            item.notes.add(item.at, f"an item of type {shown(other or 'none')} {NOT_TOLD}")


def _read_part(part: Fields, builder: MessageBuilder) -> None:
    match part.text("type"):
        case "output_text":
            builder.text(part.text("text") or "")
            for name in ("annotations", "logprobs"):
                if part.items(name):
                    part.notes.add(part.path(name), NOT_TOLD)
        case "refusal":
            builder.refusal(part.text("refusal") or "")
        case other:
            part.notes.add(part.at, f"content of type {shown(other or 'none')} {NOT_TOLD}")
