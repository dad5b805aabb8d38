"""Read the content blocks of an Anthropic request.

Laws: (1) a block of an unknown type, or at a place where it means nothing here, is refused by name;
(2) what only helps the vendor's cache or shows sources is let go with a note.
Not here: the fields around the messages (request.py), what the target can take (the writers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from jackline.dialects.neutral.account import (
    CannotSayError,
    Fields,
    Notes,
    is_text,
    items_of,
    shown,
    text_of,
)
from jackline.dialects.neutral.conversation import (
    Paper,
    Part,
    Picture,
    Role,
    Shown,
    Thought,
    ToolCall,
    ToolResult,
    Words,
)

NO_CACHE_MARKS = "the other side decides by itself what it caches"
_NO_CITATIONS = "sources cannot be cited across dialects"
_NO_SIGNATURE = "only the model that signed a thought can read its signature"


def read_content(raw: msgspec.Raw, at: str, role: Role, notes: Notes) -> list[Part]:
    """The parts of a message, in order; empty texts say nothing and are not there."""
    if is_text(raw):
        said = text_of(raw, at)
        return [Words(at, said)] if said else []
    parts: list[Part] = []
    for index, item in enumerate(items_of(raw, at)):
        parts += _read_block(Fields(item, f"{at}[{index}]", notes), role)
    return parts


def _read_block(block: Fields, role: Role) -> list[Part]:
    kind = block.needed_text("type")
    read = _BLOCKS[role].get(kind)
    if read is None:
        raise CannotSayError(
            block.at, f"a block of type {shown(kind)} from the {role} cannot be said here"
        )
    block.let_go("cache_control", NO_CACHE_MARKS)
    parts = read(block)
    block.close()
    return parts


def _read_text(block: Fields) -> list[Part]:
    block.let_go("citations", _NO_CITATIONS)
    said = block.needed_text("text")
    return [Words(block.path("text"), said)] if said else []


def _read_picture(block: Fields) -> list[Part]:
    block.let_go("transformations", "the other side fits images in its own way")
    source = _source(block)
    kind = source.needed_text("type")
    if kind == "base64":
        url = _data_url(source)
    elif kind == "url":
        url = source.needed_text("url")
    else:
        raise CannotSayError(source.at, f"an image from a source of type {shown(kind)}")
    source.close()
    return [Picture(block.at, url)]


def _read_document(block: Fields) -> list[Part]:
    block.let_go("citations", _NO_CITATIONS)
    title, context = block.text("title"), block.text("context")
    source = _source(block)
    kind = source.needed_text("type")
    parts: list[Part] = [Words(block.path("context"), context)] if context else []
    if kind == "base64":
        parts.append(Paper(block.at, title, _data_url(source)))
    elif kind == "url":
        parts.append(Paper(block.at, title, source.needed_text("url")))
    elif kind in ("text", "content"):
        if title:
            parts.append(Words(block.path("title"), title))
        parts += _inline_document(source, kind)
    else:
        raise CannotSayError(source.at, f"a document from a source of type {shown(kind)}")
    source.close()
    return parts


def _inline_document(source: Fields, kind: str) -> list[Part]:
    if kind == "content":
        where = source.path("content")
        return list(_shown(read_content(source.needed("content"), where, "user", source.notes)))
    source.let_go("media_type", "told as plain text")
    return [Words(source.path("data"), source.needed_text("data"))]


def _read_search_result(block: Fields) -> list[Part]:
    block.let_go("citations", _NO_CITATIONS)
    head = f"{block.needed_text('title')}\n{block.needed_text('source')}"
    where = block.path("content")
    inside = read_content(block.needed("content"), where, "user", block.notes)
    return [Words(block.at, head), *_shown(inside)]


def _read_thought(block: Fields) -> list[Part]:
    block.let_go("signature", _NO_SIGNATURE)
    thought = block.needed_text("thinking")
    return [Thought(block.path("thinking"), thought)] if thought else []


def _read_hidden_thought(block: Fields) -> list[Part]:
    block.let_go("data", _NO_SIGNATURE)
    return []


def _read_fallback(block: Fields) -> list[Part]:
    # The vendor's mark for where one of its models took over; no model ever sees it.
    for name in ("from", "to", "trigger"):
        block.let_go(name, "marks a change of models at the vendor's, which no model is shown")
    return []


def _read_tool_addition(block: Fields) -> list[Part]:
    tool = block.inner("tool")
    kind = None if tool is None else tool.text("type")
    if tool is None or kind != "tool_reference":
        raise CannotSayError(block.path("tool"), f"a tool added as {shown(kind or 'nothing')}")
    tool.note_rest("every tool is told from the start")
    return []


def _read_call(block: Fields) -> list[Part]:
    caller = block.inner("caller")
    if caller is not None:
        kind = caller.needed_text("type")
        if kind != "direct":
            raise CannotSayError(caller.at, f"a tool call made by {shown(kind)}")
        block.notes.add(caller.path("type"), "calls are always direct here")
        caller.close()
    given = bytes(block.needed("input")).decode()
    return [ToolCall(block.at, block.needed_text("id"), block.needed_text("name"), given)]


def _read_result(block: Fields) -> list[Part]:
    content = block.raw("content")
    parts: list[Shown] = []
    if content is not None:
        where = block.path("content")
        if is_text(content):
            parts = list(_shown(read_content(content, where, "user", block.notes)))
        else:
            for index, item in enumerate(items_of(content, where)):
                inner = Fields(item, f"{where}[{index}]", block.notes)
                parts += _shown(_read_result_part(inner))
    failed = block.flag("is_error")
    return [ToolResult(block.at, block.needed_text("tool_use_id"), tuple(parts), failed)]


def _read_result_part(inner: Fields) -> list[Part]:
    kind = inner.needed_text("type")
    if kind == "tool_reference":
        # All tools are told to the other side from the start; this only says that one was found.
        inner.let_go("cache_control", NO_CACHE_MARKS)
        name = inner.needed_text("tool_name")
        inner.close()
        return [Words(inner.path("tool_name"), f"The tool {name} is available.")]
    read = _IN_RESULTS.get(kind)
    if read is None:
        raise CannotSayError(inner.at, f"a block of type {shown(kind)} in a tool's result")
    inner.let_go("cache_control", NO_CACHE_MARKS)
    parts = read(inner)
    inner.close()
    return parts


def _shown(parts: list[Part]) -> list[Shown]:
    """The parts, none of which may be a call, a result or a thought."""
    plain: list[Shown] = []
    for part in parts:
        if not isinstance(part, Words | Picture | Paper):
            raise CannotSayError(part.at, "a block inside of another that may not be there")
        plain.append(part)
    return plain


def _source(block: Fields) -> Fields:
    source = block.inner("source")
    if source is None:
        raise CannotSayError(block.path("source"), "is missing")
    return source


def _data_url(source: Fields) -> str:
    return f"data:{source.needed_text('media_type')};base64,{source.needed_text('data')}"


_Reading = Callable[[Fields], list[Part]]
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
