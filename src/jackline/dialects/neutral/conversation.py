"""Parse an Anthropic request into a conversation in no dialect, with ids for other dialects.

Rules: (1) every field is used, dropped with a note, or refused by name; so is a block of an
unknown type, or at a place where it means nothing; (2) values are immutable, and each part has its
path in the request, so that a writer can refuse it by name; JSON that is only copied (arguments,
schemas) stays as written; (3) neighbours of the same role are one turn, as the vendor reads them;
a system message that has been cleared is left out; (4) only tools that the client runs by a schema
can be translated; (5) thinking settings become a level of effort; without a setting none is sent;
(6) the same id always becomes the same id, so that calls and results stay linked; an id that the
target accepts is not changed, and two ids of one answer never become one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec

from jackline.dialects.neutral.fields import (
    Fields,
    TranslationNotes,
    UntranslatableError,
    read_items,
    read_text,
    shown,
)


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image; its URL may contain the data."""

    at: str
    url: str


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A file; its URL may contain the data."""

    at: str
    title: str | None
    url: str

    @property
    def name(self) -> str:
        """The file name."""
        return self.title or "document.pdf"

    @property
    def inline(self) -> bool:
        """Whether the URL contains the data."""
        return self.url.startswith("data:")


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning of the model, which another model does not get."""

    at: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call of the model; `arguments` is JSON."""

    at: str
    id: str
    name: str
    arguments: str


VisiblePart: TypeAlias = TextPart | ImagePart | DocumentPart


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The result of a tool call."""

    at: str
    id: str
    parts: tuple[VisiblePart, ...]
    failed: bool


ContentPart: TypeAlias = VisiblePart | ThinkingPart | ToolCallPart | ToolResultPart
Role: TypeAlias = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """Neighbouring messages of one role."""

    at: str
    role: Role
    parts: tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that the model may call."""

    at: str
    name: str
    description: str | None
    schema: msgspec.Raw
    strict: bool


@dataclass(frozen=True, slots=True)
class ConversationRequest:
    """A whole request; with the `choice` "tool", the one named `chosen_tool` must be called."""

    system: tuple[TextPart, ...]
    turns: tuple[ConversationTurn, ...]
    tools: tuple[ToolDefinition, ...]
    choice: Literal["auto", "any", "none", "tool"] | None
    chosen_tool: str
    one_call_at_a_time: bool
    max_tokens: int | None
    temperature: msgspec.Raw | None
    top_p: msgspec.Raw | None
    stops: tuple[str, ...]
    effort: str | None
    schema: msgspec.Raw | None
    user: str | None
    stream: bool


FAILED = "The tool reported an error:"
"""Written before a failed result: OpenAI's dialects have no field for that."""
CLAUDE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_ANSWER_PREFIX = re.compile(r"^(chatcmpl-|resp_|resp-|msg_)")
_CALL_PREFIX = re.compile(r"^(call_|toolu_)")
# Shorter ids are counters: they come again in the next answer, and Claude accepts each only once.
_LEAST_UNIQUE = 16
_DIGITS = 24
_LONGEST_NAME = 64
# Of ids in answers. Ids are a few dozen characters long; the id of an answer is hashed for each of
# its calls, so a long one would be expensive.
_LONGEST_ID = 256


def digest(*parts: str) -> str:
    """A short hash of these parts."""
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_DIGITS]


def message_id(foreign: str, body: bytes) -> str:
    """An Anthropic-style id for an answer; made from its bytes when it has none."""
    if len(foreign) <= _LONGEST_ID and CLAUDE_ID.fullmatch(foreign):
        return f"msg_{_ANSWER_PREFIX.sub('', foreign)}"
    if foreign:
        return f"msg_{digest(foreign)}"
    return f"msg_{sha256(body).hexdigest()[:_DIGITS]}"


class ToolIds:
    """Ids for the tool calls of one answer."""

    __slots__ = ("_answer", "_used")

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._used: set[str] = set()

    def of(self, foreign: str) -> str:
        """An Anthropic-style id for the next call of this answer."""
        own = f"toolu_{_CALL_PREFIX.sub('', foreign)}"
        if (
            not _LEAST_UNIQUE <= len(foreign) <= _LONGEST_ID
            or not CLAUDE_ID.fullmatch(own)
            or own in self._used
        ):
            own = f"toolu_{digest(self._answer, foreign, str(len(self._used)))}"
        self._used.add(own)
        return own


def tool_name(real: str) -> str:
    """A tool's name as OpenAI accepts it: at most 64 plain characters."""
    plain = _NOT_IN_A_NAME.sub("_", real)
    if plain == real and 0 < len(real) <= _LONGEST_NAME:
        return real
    return f"{plain[: _LONGEST_NAME - 9]}_{digest(real)[:8]}"


LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_MEDIUM_BUDGET = 4_096
_HIGH_BUDGET = 16_384
_NO_CACHE_MARKS = "the target decides by itself what it caches"
_NO_CITATIONS = "sources cannot be cited across dialects"
_NO_SIGNATURE = "only the model that signed a thinking block can read its signature"
_ALL_TOOLS = "every tool is sent from the start"
_DIRECT_CALLS = "calls are always direct here"
_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_VISIBLE = frozenset({"text", "image", "document", "search_result"})
_RESULT = "result of a tool"
_ALLOWED: Mapping[str, frozenset[str]] = {
    "user": _VISIBLE | {"tool_result"},
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use", "fallback"}),
    "system": frozenset({"text", "tool_addition"}),
    _RESULT: _VISIBLE | {"tool_reference"},
}
# What changes how the vendor serves a request, but not what is requested.
_HINTS: Mapping[str, str] = {
    "cache_control": _NO_CACHE_MARKS,
    "compaction": "the vendor's own compaction exists only there",
    "context_management": "the vendor's own editing of the context exists only there",
    "diagnostics": "diagnostics are between the client and its vendor",
    "fallback_credit_token": "credits are between the client and its vendor",
    "fallbacks": "the vendor's own fallbacks exist only there",
    "service_tier": "tiers of service are between the client and its vendor",
    "speed": "tiers of service are between the client and its vendor",
    "top_k": "OpenAI's dialects have no top_k",
}


def read_conversation(body: bytes | bytearray, notes: TranslationNotes) -> ConversationRequest:
    """The conversation; UntranslatableError when it cannot be understood or expressed."""
    top = Fields.of_document(body, notes)
    top.raw("model")
    schema = effort = user = None
    config = top.inner("output_config")
    if config is not None:
        effort = config.text("effort")
        config.drop("task_budget", "budgets of tokens are counted by the vendor only")
    for place, name in ((config, "format"), (top, "output_format")):
        wanted = None if place is None else place.inner(name)
        if wanted is not None:
            kind = wanted.needed_text("type")
            if kind != "json_schema":
                what = f"an output format of type {shown(kind)}"
                raise UntranslatableError(wanted.path("type"), what)
            schema = wanted.needed("schema")
            wanted.close()
        if config is not None and place is config:
            config.close()
    turns, effort, effort_at = _read_turns(top.items("messages"), effort, notes)
    tools = tuple(
        _read_tool(Fields(item, f"tools[{index}]", notes))
        for index, item in enumerate(top.items("tools"))
    )
    wanted = top.inner("tool_choice")
    choice, chosen_tool, one_at_a_time = _read_choice(wanted, has_tools=bool(tools))
    system = top.raw("system")
    parts = [] if system is None else _read_content(system, "system", "system", notes)
    metadata = top.inner("metadata")
    if metadata is not None:
        user = metadata.text("user_id")
        metadata.close()
    request = ConversationRequest(
        system=tuple(part for part in parts if isinstance(part, TextPart)),
        turns=turns,
        tools=tools,
        choice=choice,
        chosen_tool=chosen_tool,
        one_call_at_a_time=one_at_a_time,
        max_tokens=top.count("max_tokens"),
        temperature=top.raw("temperature"),
        top_p=top.raw("top_p"),
        stops=top.texts("stop_sequences"),
        effort=_read_effort(top.inner("thinking"), effort, effort_at),
        schema=schema,
        user=user,
        stream=top.flag("stream"),
    )
    for name, why in _HINTS.items():
        top.drop(name, why)
    top.close()
    return request


def _read_turns(
    items: list[msgspec.Raw], effort: str | None, notes: TranslationNotes
) -> tuple[tuple[ConversationTurn, ...], str | None, str]:
    """The turns, the effort that the last message wants, and where it is written."""
    effort_at = "output_config.effort"
    messages = [Fields(item, f"messages[{place}]", notes) for place, item in enumerate(items)]
    roles: list[Role] = []
    for message in messages:
        name = message.needed_text("role")
        if name not in _ROLES:
            raise UntranslatableError(message.path("role"), f"the role {shown(name)}")
        roles.append(_ROLES[name])
    last_user = max((place for place, role in enumerate(roles) if role == "user"), default=-1)
    turns: list[tuple[str, Role, list[ContentPart]]] = []
    for place, (message, role) in enumerate(zip(messages, roles, strict=True)):
        config = message.inner("output_config") if role == "system" else None
        if config is not None:
            later, later_at = config.text("effort"), config.path("effort")
            if later is not None and later != effort:
                if effort is not None:
                    notes.add(effort_at, "a later message requests another effort")
                effort, effort_at = later, later_at
            config.close()
        if role == "system":
            parts = _read_system_message(message, is_cleared=place < last_user)
        else:
            parts = _read_content(message.needed("content"), message.path("content"), role, notes)
        message.close()
        if parts and role != "system" and turns and turns[-1][1] == role:
            turns[-1][2].extend(parts)
        elif parts:
            turns.append((message.at, role, parts))
    if turns and turns[-1][1] == "assistant":
        raise UntranslatableError(turns[-1][0], "an answer that has begun cannot be continued here")
    read = tuple(ConversationTurn(at, role, tuple(parts)) for at, role, parts in turns)
    return read, effort, effort_at


def _read_system_message(message: Fields, *, is_cleared: bool) -> list[ContentPart]:
    clear_at = message.text("clear_at")
    if clear_at is not None:
        message.notes.add(message.path("clear_at"), "applied here, since the target cannot")
    if clear_at == "next_user_message" and is_cleared:
        message.drop("content", "a system message that a later user message has cleared")
        return []
    if clear_at not in (None, "never", "next_user_message"):
        raise UntranslatableError(message.path("clear_at"), f"clearing at {shown(clear_at)}")
    content = message.raw("content")
    if content is None:
        return []
    return _read_content(content, message.path("content"), "system", message.notes)


def _read_content(
    raw: msgspec.Raw, at: str, where: str, notes: TranslationNotes
) -> list[ContentPart]:
    """The parts of a content in order, without empty texts; `where` decides what is allowed."""
    text = read_text(raw, at)
    if text is not None:
        return [TextPart(at, text)] if text else []
    parts: list[ContentPart] = []
    for index, item in enumerate(read_items(raw, at)):
        block = Fields(item, f"{at}[{index}]", notes)
        kind = block.needed_text("type")
        if kind not in _ALLOWED[where]:
            raise UntranslatableError(
                block.at, f"a block of type {shown(kind)} in the {where} cannot be sent here"
            )
        block.drop("cache_control", _NO_CACHE_MARKS)
        parts += _read_block(block, kind)
        block.close()
    return parts


def _read_block(block: Fields, kind: str) -> list[ContentPart]:
    match kind:
        case "text":
            block.drop("citations", _NO_CITATIONS)
            text = block.needed_text("text")
            return [TextPart(block.path("text"), text)] if text else []
        case "image" | "document":
            return _read_media(block, kind)
        case "search_result":
            block.drop("citations", _NO_CITATIONS)
            head = f"{block.needed_text('title')}\n{block.needed_text('source')}"
            return [TextPart(block.at, head), *_read_visible(block, "user")]
        case "thinking":
            block.drop("signature", _NO_SIGNATURE)
            text = block.needed_text("thinking")
            return [ThinkingPart(block.path("thinking"))] if text else []
        case "redacted_thinking":
            block.drop("data", _NO_SIGNATURE)
            return []
        case "tool_use" | "tool_result" | "tool_reference" | "tool_addition":
            return _read_tool_block(block, kind)
        case _:
            # A `fallback`: where one of the vendor's models took over; no model ever sees it.
            for name in ("from", "to", "trigger"):
                block.drop(name, "marks a change of the vendor's models, which no model sees")
            return []


def _read_tool_block(block: Fields, kind: str) -> list[ContentPart]:
    match kind:
        case "tool_use":
            caller = block.inner("caller")
            if caller is not None:
                made_by = caller.needed_text("type")
                if made_by != "direct":
                    raise UntranslatableError(caller.at, f"a tool call made by {shown(made_by)}")
                block.notes.add(caller.path("type"), _DIRECT_CALLS)
                caller.close()
            arguments = bytes(block.needed("input")).decode()
            call, name = block.needed_text("id"), block.needed_text("name")
            return [ToolCallPart(block.at, call, name, arguments)]
        case "tool_result":
            parts = _read_visible(block, _RESULT)
            failed = block.flag("is_error")
            call = block.needed_text("tool_use_id")
            return [ToolResultPart(block.at, call, tuple(parts), failed)]
        case "tool_reference":
            # All tools are sent from the start; this only says that one was found.
            name = block.needed_text("tool_name")
            return [TextPart(block.path("tool_name"), f"The tool {name} is available.")]
        case _:
            tool = block.inner("tool")
            added = None if tool is None else tool.text("type")
            if tool is None or added != "tool_reference":
                raise UntranslatableError(
                    block.path("tool"), f"a tool added as {shown(added or 'nothing')}"
                )
            tool.note_rest(_ALL_TOOLS)
            return []


def _read_media(block: Fields, kind: str) -> list[ContentPart]:
    """An image, a file, or the text of a document."""
    parts: list[ContentPart] = []
    title = None
    if kind == "image":
        block.drop("transformations", "the target scales images in its own way")
    else:
        block.drop("citations", _NO_CITATIONS)
        title, context = block.text("title"), block.text("context")
        if context:
            parts.append(TextPart(block.path("context"), context))
    source = block.inner("source")
    if source is None:
        raise UntranslatableError(block.path("source"), "is missing")
    form = source.needed_text("type")
    if form in ("base64", "url"):
        if form == "url":
            url = source.needed_text("url")
        else:
            url = f"data:{source.needed_text('media_type')};base64,{source.needed_text('data')}"
        is_image = kind == "image"
        parts.append(ImagePart(block.at, url) if is_image else DocumentPart(block.at, title, url))
    elif form in ("text", "content") and kind == "document":
        if title:
            parts.append(TextPart(block.path("title"), title))
        if form == "content":
            parts += _read_visible(source, "user")
        else:
            source.drop("media_type", "sent as plain text")
            parts.append(TextPart(source.path("data"), source.needed_text("data")))
    else:
        article = "an" if kind == "image" else "a"
        raise UntranslatableError(
            source.at, f"{article} {kind} from a source of type {shown(form)}"
        )
    source.close()
    return parts


def _read_visible(block: Fields, where: str) -> list[VisiblePart]:
    """The content of a block, which may have no call, result or thinking in it."""
    content = block.raw("content")
    if content is None and where == _RESULT:
        return []
    if content is None:
        raise UntranslatableError(block.path("content"), "is missing")
    visible: list[VisiblePart] = []
    for part in _read_content(content, block.path("content"), where, block.notes):
        if not isinstance(part, TextPart | ImagePart | DocumentPart):
            raise UntranslatableError(part.at, "a block that may not be inside of another")
        visible.append(part)
    return visible


def _read_tool(tool: Fields) -> ToolDefinition:
    kind = tool.text("type") or "custom"
    if kind != "custom":
        raise UntranslatableError(tool.at, f"the vendor's own tool {shown(kind)} exists only there")
    tool.drop("cache_control", _NO_CACHE_MARKS)
    tool.drop("defer_loading", _ALL_TOOLS)
    tool.drop("eager_input_streaming", "the target decides how it streams arguments")
    where = tool.path("allowed_callers")
    callers = tool.items("allowed_callers")
    if callers and b'"direct"' not in [bytes(caller) for caller in callers]:
        raise UntranslatableError(where, "a tool that only the vendor's own code may call")
    if callers:
        tool.notes.add(where, _DIRECT_CALLS)
    name = tool.needed_text("name")
    description = tool.text("description")
    examples = tool.raw("input_examples")
    if examples is not None:
        tool.notes.add(tool.path("input_examples"), "sent at the end of the description")
        added = f"Examples of its input: {bytes(examples).decode()}"
        description = f"{description}\n\n{added}" if description else added
    schema, strict = tool.needed("input_schema"), tool.flag("strict")
    tool.close()
    return ToolDefinition(tool.at, name, description, schema, strict)


def _read_choice(
    choice: Fields | None, *, has_tools: bool
) -> tuple[Literal["auto", "any", "none", "tool"] | None, str, bool]:
    """Whether a tool must be called, which, and whether only one may be called at a time."""
    if choice is None:
        return None, "", False
    if not has_tools:
        choice.note_rest("there are no tools to choose from")
        return None, "", False
    kind, name = choice.needed_text("type"), ""
    one_at_a_time = choice.flag("disable_parallel_tool_use")
    match kind:
        case "auto" | "any" | "none":
            pass
        case "tool":
            name = choice.needed_text("name")
        case _:
            raise UntranslatableError(choice.path("type"), f"a tool choice of type {shown(kind)}")
    choice.close()
    return kind, name, one_at_a_time


def _read_effort(thinking: Fields | None, effort: str | None, effort_at: str) -> str | None:
    """The level of effort; None when the model shall decide."""
    if effort is not None and effort not in LEVELS:
        raise UntranslatableError(effort_at, f"an effort of {shown(effort)}")
    if thinking is None:
        return effort
    kind = thinking.needed_text("type")
    budget = thinking.count("budget_tokens")
    thinking.drop("display", "what is shown of other models' reasoning is set in the gateway")
    thinking.drop("block_binding", "thinking blocks are not bound here")
    thinking.close()
    notes, where, budget_at = thinking.notes, thinking.path("type"), thinking.path("budget_tokens")
    match kind:
        case "disabled":
            notes.add(where, "sent as the lowest effort")
            return "none"
        case "enabled" if effort is None and budget is not None:
            notes.add(budget_at, "sent as a level of effort")
            notes.add(where, "sent as a level of effort")
            if budget < _MEDIUM_BUDGET:
                return "low"
            return "medium" if budget < _HIGH_BUDGET else "high"
        case "enabled" | "adaptive" | "between_tools":
            notes.add(where, "the target decides by itself when it thinks")
            if budget is not None:
                notes.add(budget_at, "replaced by the requested effort")
            return effort
        case _:
            raise UntranslatableError(where, f"thinking of type {shown(kind)}")
