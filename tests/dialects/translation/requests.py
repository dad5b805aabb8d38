"""Anthropic requests for property tests: everything that can be used, noted or refused.

Rules: (1) without an alien every request can be said in both of OpenAI's dialects; (2) an alien is
one field or block that nobody knows, with the path that a refusal must name.
Not here: what is asserted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

WORDS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"), include_characters="\n\t"),
    min_size=1,
    max_size=12,
).filter(str.strip)
IDS = st.text("abcdefABCDEF0123456789_-", min_size=1, max_size=60).map("toolu_".__add__)
NAMES = st.one_of(
    st.sampled_from(["Bash", "Read", "mcp__git__log"]),
    st.text("abcdefgh_", min_size=60, max_size=128),
)
BASE64 = st.text("ABCDabcd0123+/", min_size=4, max_size=12)
VALUES = st.recursive(
    st.one_of(WORDS, st.integers(-(10**6), 10**6), st.booleans(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)
INPUTS = st.dictionaries(st.sampled_from(["command", "path", "x"]), VALUES, max_size=2)
CACHE: Json = {"type": "ephemeral", "ttl": "1h"}


@st.composite
def maybe_cached(draw: st.DrawFn, blocks: st.SearchStrategy[Json]) -> Json:
    block = dict(draw(blocks))
    if draw(st.booleans()):
        block["cache_control"] = CACHE
    return block


TEXT = st.builds(lambda texts: {"type": "text", "text": texts}, WORDS)
IMAGE = st.one_of(
    st.builds(
        lambda data: {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": data},
        },
        BASE64,
    ),
    st.just({"type": "image", "source": {"type": "url", "url": "https://pictures.test/1.png"}}),
)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    source: Json = draw(
        st.one_of(
            st.builds(
                lambda data: {"type": "base64", "media_type": "application/pdf", "data": data},
                BASE64,
            ),
            st.builds(
                lambda data: {"type": "text", "media_type": "text/plain", "data": data}, WORDS
            ),
            st.builds(
                lambda blocks: {"type": "content", "content": blocks},
                st.lists(st.one_of(TEXT, IMAGE), min_size=1, max_size=2),
            ),
        )
    )
    block: Json = {"type": "document", "source": source}
    for name in ("title", "context"):
        if draw(st.booleans()):
            block[name] = draw(WORDS)
    if draw(st.booleans()):
        block["citations"] = {"enabled": True}
    return block


SEARCH_RESULT = st.builds(
    lambda title, source, blocks: {
        "type": "search_result",
        "title": title,
        "source": source,
        "content": blocks,
    },
    WORDS,
    WORDS,
    st.lists(TEXT, min_size=1, max_size=2),
)
SHOWN = maybe_cached(st.one_of(TEXT, TEXT, IMAGE, documents(), SEARCH_RESULT))
THOUGHT = st.one_of(
    st.builds(
        lambda texts, signed: {"type": "thinking", "thinking": texts, "signature": signed},
        WORDS,
        BASE64,
    ),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, BASE64),
)
SYSTEM = st.builds(
    lambda content, extra: {"role": "system", "content": content, **extra},
    st.one_of(
        WORDS,
        st.lists(maybe_cached(TEXT), min_size=1, max_size=2),
        st.just([{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Bash"}}]),
    ),
    st.sampled_from([{}, {"output_config": {"effort": "low"}}, {"clear_at": "next_user_message"}]),
)


@st.composite
def results(draw: st.DrawFn, known: str) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": known}
    kind = draw(st.sampled_from(["none", "string", "blocks"]))
    if kind == "string":
        block["content"] = draw(WORDS)
    elif kind == "blocks":
        reference = st.builds(lambda name: {"type": "tool_reference", "tool_name": name}, NAMES)
        block["content"] = draw(st.lists(st.one_of(SHOWN, reference), max_size=3))
    if draw(st.booleans()):
        block["is_error"] = draw(st.booleans())
    return draw(maybe_cached(st.just(block)))


@st.composite
def rounds(draw: st.DrawFn, used: set[str]) -> list[Json]:
    """What the assistant says and calls, and what the user answers."""
    reply: list[Json] = draw(st.lists(st.one_of(maybe_cached(TEXT), THOUGHT), max_size=2))
    hopped: bool = draw(st.booleans())
    calls: list[Json] = []
    for known in draw(st.lists(IDS.filter(lambda one: one not in used), max_size=3, unique=True)):
        used.add(known)
        name, given = draw(NAMES), draw(INPUTS)
        calls.append({"type": "tool_use", "id": known, "name": name, "input": given})
    if calls and hopped:
        hop = {"from": {"model": "a"}, "to": {"model": "b"}}
        reply.append({"type": "fallback", **hop})
    content = reply + calls or [{"type": "text", "text": draw(WORDS)}]
    answers = [draw(results(call["id"])) for call in draw(st.permutations(calls))]
    after = draw(st.lists(SHOWN, min_size=0 if answers else 1, max_size=2))
    turns: list[Json] = [
        {"role": "assistant", "content": content},
        {"role": "user", "content": answers + after},
    ]
    if draw(st.booleans()):
        turns.insert(draw(st.sampled_from([1, 2])), draw(SYSTEM))
    return turns


@st.composite
def tools(draw: st.DrawFn) -> Json:
    tool: Json = {
        "name": draw(NAMES),
        "input_schema": {"type": "object", "properties": {"x": {"description": draw(WORDS)}}},
    }
    extras: Json = {
        "type": "custom",
        "description": draw(WORDS),
        "strict": True,
        "cache_control": CACHE,
        "defer_loading": True,
        "eager_input_streaming": True,
        "allowed_callers": ["direct"],
        "input_examples": [{"x": draw(WORDS)}],
    }
    for name in draw(st.lists(st.sampled_from(sorted(extras)), unique=True)):
        tool[name] = extras[name]
    return tool


EXTRAS: dict[str, st.SearchStrategy[object]] = {
    "system": st.one_of(WORDS, st.lists(maybe_cached(TEXT), min_size=1, max_size=3)),
    "temperature": st.floats(0, 1),
    "top_p": st.floats(0, 1),
    "top_k": st.integers(1, 100),
    "thinking": st.sampled_from(
        [
            {"type": "adaptive", "display": "updates"},
            {"type": "enabled", "budget_tokens": 5000},
            {"type": "disabled"},
        ]
    ),
    "output_config": st.sampled_from(
        [
            {"effort": "medium"},
            {"effort": "max"},
            {"format": {"type": "json_schema", "schema": {"type": "object", "title": "Schema"}}},
        ]
    ),
    "metadata": st.builds(lambda user: {"user_id": user}, WORDS),
    "context_management": st.just({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    "service_tier": st.just("auto"),
    "stream": st.booleans(),
}
CHOICES = st.one_of(
    st.sampled_from([{"type": "auto"}, {"type": "any"}, {"type": "none"}]),
    st.just({"type": "auto", "disable_parallel_tool_use": True}),
)


@st.composite
def requests(draw: st.DrawFn) -> Json:
    """A request that both dialects can say."""
    first = draw(st.one_of(WORDS, st.lists(SHOWN, min_size=1, max_size=3)))
    messages: list[Json] = [{"role": "user", "content": first}]
    used: set[str] = set()
    for _ in range(draw(st.integers(0, 3))):
        messages += draw(rounds(used))
    sent: Json = {
        "model": "claude-opus-4-8",
        "max_tokens": draw(st.integers(1, 64000)),
        "messages": messages,
    }
    offered = draw(st.lists(tools(), max_size=3, unique_by=lambda tool: tool["name"]))
    if offered:
        sent["tools"] = offered
        if draw(st.booleans()):
            named = st.builds(
                lambda tool: {"type": "tool", "name": tool["name"]}, st.sampled_from(offered)
            )
            sent["tool_choice"] = draw(st.one_of(CHOICES, named))
    for name in draw(st.lists(st.sampled_from(sorted(EXTRAS)), unique=True)):
        sent[name] = draw(EXTRAS[name])
    return sent


@dataclass(frozen=True)
class Alien:
    """A request with one thing in it that nobody knows, and the path of that thing."""

    request: Json
    at: str


@st.composite
def alien_requests(draw: st.DrawFn) -> Alien:
    sent = json.loads(json.dumps(draw(requests())))
    place = draw(st.integers(0, len(sent["messages"]) - 1))
    message = sent["messages"][place]
    kind = draw(st.sampled_from(["top field", "message field", "block", "block field", "tool"]))
    if kind == "top field":
        sent["warp_drive"] = {"on": True}
        return Alien(sent, "warp_drive")
    if kind == "tool":
        sent.setdefault("tools", []).append({"type": "web_search_20260318", "name": "search"})
        return Alien(sent, f"tools[{len(sent['tools']) - 1}]")
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    message.pop("clear_at", None)
    if kind == "message field":
        message["warp_drive"] = 7
        return Alien(sent, f"messages[{place}].warp_drive")
    content = message["content"]
    index = draw(st.integers(0, len(content) - 1))
    if kind == "block":
        content.insert(index, {"type": "warp_core", "heat": 9})
        return Alien(sent, f"messages[{place}].content[{index}]")
    content[index]["warp_drive"] = 7
    return Alien(sent, f"messages[{place}].content[{index}].warp_drive")
