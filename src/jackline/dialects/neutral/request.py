"""Parse a whole Anthropic request into a conversation that other dialects can express.

Rules: (1) every field is carried, dropped with a note, or refused by name; so is a block of an
unknown type, or at a place where it means nothing; (2) neighbours of the same role are one turn,
as the vendor reads them; a system message that has been cleared is left out; (3) only tools that
the client runs by a schema can be translated; the vendor's own are refused by name, and a schema
stays as it was written; (4) thinking settings become a level of effort; a level that the target
does not know becomes the nearest one below, or the lowest, with a note; without a setting nothing
is sent.
Not here: what the target accepts (options.py), writing (openai_chat/, openai_responses/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from jackline.dialects.neutral.conversation import (
    ContentPart,
    ConversationRequest,
    ConversationTurn,
    DocumentPart,
    ImagePart,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolResultPart,
    VisiblePart,
    tool_name,
)
from jackline.dialects.neutral.fields import (
    Fields,
    TranslationNotes,
    UntranslatableError,
    document,
    is_text,
    items_of,
    shown,
    text_of,
)

NO_CACHE_MARKS = "the other side decides by itself what it caches"
_NO_CITATIONS = "sources cannot be cited across dialects"
_NO_SIGNATURE = "only the model that signed a thought can read its signature"


def read_content(
    raw: msgspec.Raw, at: str, role: Role, notes: TranslationNotes
) -> list[ContentPart]:
    """The parts of a message, in order; empty texts say nothing and are not there."""
    if is_text(raw):
        said = text_of(raw, at)
        return [TextPart(at, said)] if said else []
    parts: list[ContentPart] = []
    for index, item in enumerate(items_of(raw, at)):
        parts += _read_block(Fields(item, f"{at}[{index}]", notes), role)
    return parts


def _read_block(block: Fields, role: Role) -> list[ContentPart]:
    kind = block.needed_text("type")
    read = _BLOCKS[role].get(kind)
    if read is None:
        raise UntranslatableError(
            block.at, f"a block of type {shown(kind)} from the {role} cannot be said here"
        )
    block.let_go("cache_control", NO_CACHE_MARKS)
    parts = read(block)
    block.close()
    return parts


def _read_text(block: Fields) -> list[ContentPart]:
    block.let_go("citations", _NO_CITATIONS)
    said = block.needed_text("text")
    return [TextPart(block.path("text"), said)] if said else []


def _read_picture(block: Fields) -> list[ContentPart]:
    block.let_go("transformations", "the other side fits images in its own way")
    source = _source(block)
    kind = source.needed_text("type")
    if kind == "base64":
        url = _data_url(source)
    elif kind == "url":
        url = source.needed_text("url")
    else:
        raise UntranslatableError(source.at, f"an image from a source of type {shown(kind)}")
    source.close()
    return [ImagePart(block.at, url)]


def _read_document(block: Fields) -> list[ContentPart]:
    block.let_go("citations", _NO_CITATIONS)
    title, context = block.text("title"), block.text("context")
    source = _source(block)
    kind = source.needed_text("type")
    parts: list[ContentPart] = [TextPart(block.path("context"), context)] if context else []
    if kind == "base64":
        parts.append(DocumentPart(block.at, title, _data_url(source)))
    elif kind == "url":
        parts.append(DocumentPart(block.at, title, source.needed_text("url")))
    elif kind in ("text", "content"):
        if title:
            parts.append(TextPart(block.path("title"), title))
        parts += _inline_document(source, kind)
    else:
        raise UntranslatableError(source.at, f"a document from a source of type {shown(kind)}")
    source.close()
    return parts


def _inline_document(source: Fields, kind: str) -> list[ContentPart]:
    if kind == "content":
        where = source.path("content")
        return list(_shown(read_content(source.needed("content"), where, "user", source.notes)))
    source.let_go("media_type", "told as plain text")
    return [TextPart(source.path("data"), source.needed_text("data"))]


def _read_search_result(block: Fields) -> list[ContentPart]:
    block.let_go("citations", _NO_CITATIONS)
    head = f"{block.needed_text('title')}\n{block.needed_text('source')}"
    where = block.path("content")
    inside = read_content(block.needed("content"), where, "user", block.notes)
    return [TextPart(block.at, head), *_shown(inside)]


def _read_thought(block: Fields) -> list[ContentPart]:
    block.let_go("signature", _NO_SIGNATURE)
    thought = block.needed_text("thinking")
    return [ThinkingPart(block.path("thinking"), thought)] if thought else []


def _read_hidden_thought(block: Fields) -> list[ContentPart]:
    block.let_go("data", _NO_SIGNATURE)
    return []


def _read_fallback(block: Fields) -> list[ContentPart]:
    # The vendor's mark for where one of its models took over; no model ever sees it.
    for name in ("from", "to", "trigger"):
        block.let_go(name, "marks a change of models at the vendor's, which no model is shown")
    return []


def _read_tool_addition(block: Fields) -> list[ContentPart]:
    tool = block.inner("tool")
    kind = None if tool is None else tool.text("type")
    if tool is None or kind != "tool_reference":
        raise UntranslatableError(block.path("tool"), f"a tool added as {shown(kind or 'nothing')}")
    tool.note_rest("every tool is told from the start")
    return []


def _read_call(block: Fields) -> list[ContentPart]:
    caller = block.inner("caller")
    if caller is not None:
        kind = caller.needed_text("type")
        if kind != "direct":
            raise UntranslatableError(caller.at, f"a tool call made by {shown(kind)}")
        block.notes.add(caller.path("type"), "calls are always direct here")
        caller.close()
    given = bytes(block.needed("input")).decode()
    return [ToolCallPart(block.at, block.needed_text("id"), block.needed_text("name"), given)]


def _read_result(block: Fields) -> list[ContentPart]:
    content = block.raw("content")
    parts: list[VisiblePart] = []
    if content is not None:
        where = block.path("content")
        if is_text(content):
            parts = list(_shown(read_content(content, where, "user", block.notes)))
        else:
            for index, item in enumerate(items_of(content, where)):
                inner = Fields(item, f"{where}[{index}]", block.notes)
                parts += _shown(_read_result_part(inner))
    failed = block.flag("is_error")
    return [ToolResultPart(block.at, block.needed_text("tool_use_id"), tuple(parts), failed)]


def _read_result_part(inner: Fields) -> list[ContentPart]:
    kind = inner.needed_text("type")
    if kind == "tool_reference":
        # All tools are told to the other side from the start; this only says that one was found.
        inner.let_go("cache_control", NO_CACHE_MARKS)
        name = inner.needed_text("tool_name")
        inner.close()
        return [TextPart(inner.path("tool_name"), f"The tool {name} is available.")]
    read = _IN_RESULTS.get(kind)
    if read is None:
        raise UntranslatableError(inner.at, f"a block of type {shown(kind)} in a tool's result")
    inner.let_go("cache_control", NO_CACHE_MARKS)
    parts = read(inner)
    inner.close()
    return parts


def _shown(parts: list[ContentPart]) -> list[VisiblePart]:
    """The parts, none of which may be a call, a result or a thought."""
    plain: list[VisiblePart] = []
    for part in parts:
        if not isinstance(part, TextPart | ImagePart | DocumentPart):
            raise UntranslatableError(part.at, "a block inside of another that may not be there")
        plain.append(part)
    return plain


def _source(block: Fields) -> Fields:
    source = block.inner("source")
    if source is None:
        raise UntranslatableError(block.path("source"), "is missing")
    return source


def _data_url(source: Fields) -> str:
    return f"data:{source.needed_text('media_type')};base64,{source.needed_text('data')}"


_Reading = Callable[[Fields], list[ContentPart]]
_IN_RESULTS: Mapping[str, _Reading] = {
    "text": _read_text,
    "image": _read_picture,
    "document": _read_document,
    "search_result": _read_search_result,
}
_BLOCKS: Mapping[Role, Mapping[str, _Reading]] = {
    "user": {**_IN_RESULTS, "tool_result": _read_result},
    "assistant": {
        "text": _read_text,
        "thinking": _read_thought,
        "redacted_thinking": _read_hidden_thought,
        "tool_use": _read_call,
        "fallback": _read_fallback,
    },
    "system": {"text": _read_text, "tool_addition": _read_tool_addition},
}


# OpenAI's dialects have no mark for a result that is an error.
FAILED = "The tool reported an error:"


def read_tools(items: list[msgspec.Raw], notes: TranslationNotes) -> tuple[ToolDefinition, ...]:
    """The tools in order."""
    return tuple(
        _read_tool(Fields(item, f"tools[{index}]", notes)) for index, item in enumerate(items)
    )


def _read_tool(tool: Fields) -> ToolDefinition:
    kind = tool.text("type") or "custom"
    if kind != "custom":
        raise UntranslatableError(tool.at, f"the vendor's own tool {shown(kind)} exists only there")
    tool.let_go("cache_control", NO_CACHE_MARKS)
    tool.let_go("defer_loading", "every tool is told from the start")
    tool.let_go("eager_input_streaming", "the other side streams arguments as it likes")
    _read_callers(tool)
    name = tool.needed_text("name")
    description = tool.text("description")
    examples = tool.raw("input_examples")
    if examples is not None:
        tool.notes.add(tool.path("input_examples"), "told at the end of the description")
        told = f"Examples of its input: {bytes(examples).decode()}"
        description = f"{description}\n\n{told}" if description else told
    read = ToolDefinition(
        tool.at, name, description, tool.needed("input_schema"), tool.flag("strict")
    )
    tool.close()
    return read


def _read_callers(tool: Fields) -> None:
    where = tool.path("allowed_callers")
    callers = tool.items("allowed_callers")
    if callers and b'"direct"' not in [bytes(caller) for caller in callers]:
        raise UntranslatableError(where, "a tool that only the vendor's own code may call")
    if callers:
        tool.notes.add(where, "calls are always direct here")


def read_choice(choice: Fields | None, *, tools: bool) -> tuple[ToolChoice | None, bool]:
    """Which tool must be called, and whether only one call may be made at a time."""
    if choice is None:
        return None, False
    if not tools:
        choice.note_rest("there are no tools to choose from")
        return None, False
    kind = choice.needed_text("type")
    one_at_a_time = choice.flag("disable_parallel_tool_use")
    match kind:
        case "auto" | "any" | "none":
            read = ToolChoice(kind)
        case "tool":
            read = ToolChoice(kind, choice.needed_text("name"))
        case _:
            raise UntranslatableError(choice.path("type"), f"a tool choice of type {shown(kind)}")
    choice.close()
    return read, one_at_a_time


class ToolNames:
    """The names of tools as the other side takes them, and the way back."""

    __slots__ = ("_notes", "real")

    def __init__(self, notes: TranslationNotes) -> None:
        self._notes = notes
        self.real: dict[str, str] = {}

    def of(self, name: str, at: str) -> str:
        """The name to send; one that had to change is noted and remembered."""
        sent = tool_name(name)
        if sent != name:
            self.real[sent] = name
            self._notes.add(at, "the name is longer or odder than OpenAI allows and was changed")
        return sent


def tool_fields(
    asked: ConversationRequest,
    tool: Callable[[ToolDefinition], object],
    choice: Callable[[ToolChoice], object],
) -> dict[str, object]:
    """The fields about tools, which OpenAI's dialects have in common but for what is in them."""
    if not asked.tools:
        return {}
    told: dict[str, object] = {"tools": [tool(each) for each in asked.tools]}
    if asked.choice is not None:
        told["tool_choice"] = choice(asked.choice)
    if asked.one_call_at_a_time:
        told["parallel_tool_calls"] = False
    return told


LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_MEDIUM_FROM = 4_096
_HIGH_FROM = 16_384


def read_effort(thinking: Fields | None, effort: str | None, effort_at: str) -> str | None:
    """The level that is wished for; None when the model shall decide."""
    if effort is not None and effort not in LEVELS:
        raise UntranslatableError(effort_at, f"an effort of {shown(effort)}")
    if thinking is None:
        return effort
    kind = thinking.needed_text("type")
    budget = thinking.count("budget_tokens")
    thinking.let_go("display", "what is shown of foreign reasoning is set in the gateway")
    thinking.let_go("block_binding", "thoughts are not bound here")
    thinking.close()
    notes, where = thinking.notes, thinking.path("type")
    match kind:
        case "disabled":
            notes.add(where, "told as the lowest effort")
            return "none"
        case "enabled" if effort is None and budget is not None:
            notes.add(thinking.path("budget_tokens"), "told as a level of effort")
            notes.add(where, "told as a level of effort")
            return _level_of(budget)
        case "enabled" | "adaptive" | "between_tools":
            notes.add(where, "the other side decides by itself when it thinks")
            if budget is not None:
                notes.add(thinking.path("budget_tokens"), "the asked effort stands for it")
            return effort
        case _:
            raise UntranslatableError(where, f"thinking of type {shown(kind)}")


def _level_of(budget: int) -> str:
    if budget < _MEDIUM_FROM:
        return "low"
    return "medium" if budget < _HIGH_FROM else "high"


def known_effort(wish: str | None, known: tuple[str, ...], notes: TranslationNotes) -> str | None:
    """The level to send."""
    if wish is None or wish in known:
        return wish
    if not known:
        notes.add("output_config.effort", "the other side has no levels of effort")
        return None
    rank = LEVELS.index(wish)
    below = [level for level in known if level in LEVELS and LEVELS.index(level) <= rank]
    nearest = below[-1] if below else known[0]
    notes.add("output_config.effort", f"{wish} is not known there; {nearest} was asked instead")
    return nearest


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

    def change(self, effort: str | None, at: str, notes: TranslationNotes) -> None:
        """A later message wishes for something else."""
        if effort is None or effort == self.effort:
            return
        if self.effort is not None:
            notes.add(self.effort_at, "a later message asks for another effort")
        self.effort, self.effort_at = effort, at


def read_conversation(
    body: bytes | bytearray, forgo: frozenset[str], notes: TranslationNotes
) -> ConversationRequest:
    """The conversation; CannotSayError where it cannot be understood or carried."""
    top = document(body, notes)
    top.raw("model")
    wishes = _Wishes()
    schema = _read_output_config(top, wishes)
    turns = _read_turns(top.items("messages"), notes, wishes)
    tools = read_tools(top.items("tools"), notes)
    choice, one_at_a_time = read_choice(top.inner("tool_choice"), tools=bool(tools))
    system = top.raw("system")
    asked = ConversationRequest(
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
            raise UntranslatableError(where, "is not a list of strings") from None
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
        raise UntranslatableError(wanted.path("type"), f"an output format of type {shown(kind)}")
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


def _read_system(raw: msgspec.Raw, notes: TranslationNotes) -> tuple[TextPart, ...]:
    parts = read_content(raw, "system", "system", notes)
    return tuple(part for part in parts if isinstance(part, TextPart))


def _read_turns(
    items: list[msgspec.Raw], notes: TranslationNotes, wishes: _Wishes
) -> tuple[ConversationTurn, ...]:
    messages = [Fields(item, f"messages[{place}]", notes) for place, item in enumerate(items)]
    roles = [_role(message) for message in messages]
    last_user = max((place for place, role in enumerate(roles) if role == "user"), default=-1)
    said: list[tuple[str, Role, list[ContentPart]]] = []
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
        raise UntranslatableError(
            said[-1][0], "an answer that has been begun cannot be continued here"
        )
    return tuple(ConversationTurn(at, role, tuple(parts)) for at, role, parts in said)


def _role(message: Fields) -> Role:
    role = message.needed_text("role")
    if role not in _ROLES:
        raise UntranslatableError(message.path("role"), f"the role {shown(role)}")
    return _ROLES[role]


def _read_message(
    message: Fields, role: Role, wishes: _Wishes, *, cleared: bool
) -> list[ContentPart]:
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
        raise UntranslatableError(message.path("clear_at"), f"clearing at {shown(clear_at)}")
    content = message.raw("content")
    if content is None:
        return []
    return read_content(content, message.path("content"), role, message.notes)
