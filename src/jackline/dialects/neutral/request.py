"""Read a whole Anthropic request into a conversation that other dialects can say.

Laws: (1) every field is carried, let go with a note, or refused by name; (2) neighbours of the same
role are one turn, as the vendor reads them; (3) a system message that has been cleared is not told.
Not here: content blocks (content.py), tools (tools.py), writing (openai_chat/, openai_responses/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from jackline.dialects.neutral.account import CannotSayError, Fields, Notes, document, shown
from jackline.dialects.neutral.content import NO_CACHE_MARKS, read_content
from jackline.dialects.neutral.conversation import Asked, Part, Role, Turn, Words
from jackline.dialects.neutral.effort import read_effort
from jackline.dialects.neutral.tools import read_choice, read_tools

_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
# What changes how the vendor serves a request, but not what is asked.
_HINTS: Mapping[str, str] = {
    "cache_control": NO_CACHE_MARKS,
    "compaction": "the vendor's own compaction exists only there",
    "context_management": "the vendor's own editing of the context exists only there",
    "diagnostics": "diagnostics are between the client and its vendor",
    "fallback_credit_token": "credits are between the client and its vendor",
    "fallbacks": "the vendor's own fallbacks exist only there",
    "service_tier": "tiers of service are between the client and its vendor",
    "speed": "tiers of service are between the client and its vendor",
    "top_k": "OpenAI's dialects have no top_k",
}


@dataclass(slots=True)
class _Wishes:
    """What may be said in more than one place; the last one counts."""

    effort: str | None = None
    effort_at: str = "output_config.effort"

    def change(self, effort: str | None, at: str, notes: Notes) -> None:
        """A later message wishes for something else."""
        if effort is None or effort == self.effort:
            return
        if self.effort is not None:
            notes.add(self.effort_at, "a later message asks for another effort")
        self.effort, self.effort_at = effort, at


def read_asked(body: bytes | bytearray, forgo: frozenset[str], notes: Notes) -> Asked:
    """The conversation; CannotSayError where it cannot be understood or carried."""
    top = document(body, notes)
    top.raw("model")
    wishes = _Wishes()
    schema = _read_output_config(top, wishes)
    turns = _read_turns(top.items("messages"), notes, wishes)
    tools = read_tools(top.items("tools"), notes)
    choice, one_at_a_time = read_choice(top.inner("tool_choice"), tools=bool(tools))
    system = top.raw("system")
    asked = Asked(
        system=() if system is None else _read_system(system, notes),
        turns=turns,
        tools=tools,
        choice=choice,
        one_call_at_a_time=one_at_a_time,
        max_tokens=top.count("max_tokens"),
        temperature=top.raw("temperature"),
        top_p=top.raw("top_p"),
        stops=_read_stops(top),
        effort=read_effort(top.inner("thinking"), wishes.effort, wishes.effort_at),
        schema=schema,
        user=_read_user(top),
        stream=top.flag("stream"),
    )
    for name, why in _HINTS.items():
        top.let_go(name, why)
    for name in forgo:
        top.let_go(name, "left out, as the settings allow")
    top.close()
    return asked


def _read_stops(top: Fields) -> tuple[str, ...]:
    where = top.path("stop_sequences")
    stops = []
    for item in top.items("stop_sequences"):
        try:
            stops.append(msgspec.json.decode(item, type=str))
        except (msgspec.DecodeError, ValueError):
            raise CannotSayError(where, "is not a list of strings") from None
    return tuple(stops)


def _read_output_config(top: Fields, wishes: _Wishes) -> msgspec.Raw | None:
    config = top.inner("output_config")
    schema = None
    if config is not None:
        wishes.effort = config.text("effort")
        config.let_go("task_budget", "budgets of tokens are counted by the vendor only")
        wanted = config.inner("format")
        if wanted is not None:
            schema = _read_format(wanted)
        config.close()
    wanted = top.inner("output_format")
    return schema if wanted is None else _read_format(wanted)


def _read_format(wanted: Fields) -> msgspec.Raw:
    kind = wanted.needed_text("type")
    if kind != "json_schema":
        raise CannotSayError(wanted.path("type"), f"an output format of type {shown(kind)}")
    schema = wanted.needed("schema")
    wanted.close()
    return schema


def _read_user(top: Fields) -> str | None:
    metadata = top.inner("metadata")
    if metadata is None:
        return None
    user = metadata.text("user_id")
    metadata.close()
    return user


def _read_system(raw: msgspec.Raw, notes: Notes) -> tuple[Words, ...]:
    parts = read_content(raw, "system", "system", notes)
    return tuple(part for part in parts if isinstance(part, Words))


def _read_turns(items: list[msgspec.Raw], notes: Notes, wishes: _Wishes) -> tuple[Turn, ...]:
    messages = [Fields(item, f"messages[{place}]", notes) for place, item in enumerate(items)]
    roles = [_role(message) for message in messages]
    last_user = max((place for place, role in enumerate(roles) if role == "user"), default=-1)
    said: list[tuple[str, Role, list[Part]]] = []
    for place, (message, role) in enumerate(zip(messages, roles, strict=True)):
        parts = _read_message(message, role, wishes, cleared=place < last_user)
        message.close()
        if not parts:
            continue
        if role != "system" and said and said[-1][1] == role:
            said[-1][2].extend(parts)
        else:
            said.append((message.at, role, parts))
    if said and said[-1][1] == "assistant":
        raise CannotSayError(said[-1][0], "an answer that has been begun cannot be continued here")
    return tuple(Turn(at, role, tuple(parts)) for at, role, parts in said)


def _role(message: Fields) -> Role:
    role = message.needed_text("role")
    if role not in _ROLES:
        raise CannotSayError(message.path("role"), f"the role {shown(role)}")
    return _ROLES[role]


def _read_message(message: Fields, role: Role, wishes: _Wishes, *, cleared: bool) -> list[Part]:
    if role != "system":
        return read_content(message.needed("content"), message.path("content"), role, message.notes)
    config = message.inner("output_config")
    if config is not None:
        wishes.change(config.text("effort"), config.path("effort"), message.notes)
        config.close()
    clear_at = message.text("clear_at")
    if clear_at is not None:
        message.notes.add(message.path("clear_at"), "obeyed here, since the other side cannot")
    if clear_at == "next_user_message" and cleared:
        message.let_go("content", "a system message that a later user message has cleared")
        return []
    if clear_at not in (None, "never", "next_user_message"):
        raise CannotSayError(message.path("clear_at"), f"clearing at {shown(clear_at)}")
    content = message.raw("content")
    if content is None:
        return []
    return read_content(content, message.path("content"), role, message.notes)
