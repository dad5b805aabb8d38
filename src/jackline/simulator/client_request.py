"""Parse a client's request: who sends it, its place in the conversation, and its prompt.

Rules: (1) pure; a body of another shape gives empty values, never an error; (2) what clients wrap
in tags (`<system-reminder>`) is not the user's prompt; (3) prompt blocks are in the order tools,
system, messages, and a cache mark is no part of what it marks; (4) no credential is stored, only
its hash; (5) equal prefixes have equal sizes, whatever follows them; (6) marks that the vendor
rejects are refused in its words.
Not here: choosing the reply (reply_script.py), HTTP (http_wire.py), what caches do with a prompt
(prompt_cache.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeAlias

from jackline.simulator.exchange import ProviderRefusal, error_body
from jackline.simulator.prompt_cache import (
    FIVE_MINUTES,
    ONE_DAY,
    ONE_HOUR,
    STEP,
    Prompt,
    PromptBlock,
)

JsonObject: TypeAlias = dict[str, Any]

BYTES_PER_TOKEN = 4
_MODEL_ITEMS = ("function_call", "custom_tool_call", "reasoning")
_RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request as a mind sees it."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    size: int
    body_hash: str
    prompt: str
    """The first thing the user asked."""
    latest: str
    """All text of the last entry."""
    results: str
    """All text of the tool results in the last entry."""
    turn: int
    """How often the model has spoken in this conversation; a retry keeps its turn."""
    call: int
    """How many requests this speaker made before; a retry counts."""

    @property
    def agent(self) -> str:
        """The sub-agent that asks, or "" for the main thread."""
        return self.headers.get("x-claude-code-agent-id", "")

    @property
    def session(self) -> str:
        """The session that asks."""
        headers = self.headers
        named = headers.get("x-claude-code-session-id") or headers.get("session-id")
        return named or str(self.body.get("prompt_cache_key") or "")

    @property
    def model(self) -> str:
        """The model that is asked."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether the answer shall come in events."""
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that the client offers."""
        return frozenset(_tool_name(tool) for tool in _objects(self.body.get("tools")))

    @property
    def wants_json(self) -> bool:
        """Whether the answer's text shall be a JSON document by a schema."""
        body = self.body
        places = (
            body.get("response_format"),
            _inside(body.get("text"), "format"),
            _inside(body.get("output_config"), "format"),
            body.get("output_format"),
        )
        return any(_inside(place, "type") in ("json_schema", "json_object") for place in places)

    @property
    def input_tokens(self) -> int:
        """About four bytes to a token."""
        return max(4, self.size // BYTES_PER_TOKEN)


def read_client_request(
    path: str,
    headers: Mapping[str, str],
    raw: bytes,
    call: int = 0,
    told_by_path: Mapping[str, Any] | None = None,
) -> ClientRequest | None:
    """The request, or None when its body is not a JSON object.

    `told_by_path` are fields that some endpoints have in their address instead of in the body.
    """
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    if told_by_path:
        body = {**body, **told_by_path}
    entries = _entries(body)
    last = entries[-1] if entries else {}
    return ClientRequest(
        path=path,
        headers=headers,
        body=body,
        size=len(raw),
        body_hash=hashlib.sha256(raw).hexdigest()[:16],
        prompt=_first_prompt(entries),
        latest="" if last.get("role") == "tool" else "\n".join(_texts(last)),
        results="\n".join(_results(entries)),
        turn=_turns(entries),
        call=call,
    )


def _entries(body: Mapping[str, Any]) -> list[JsonObject]:
    given = body.get("messages") or body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given)


def _first_prompt(entries: Iterable[JsonObject]) -> str:
    for entry in entries:
        if entry.get("role") != "user":
            continue
        for text in _texts(entry):
            if text and not text.lstrip().startswith("<"):
                return text
    return ""


def _turns(entries: Iterable[JsonObject]) -> int:
    """Runs of the model's entries, so that a batch of calls counts once."""
    spoken = [_from_model(entry) for entry in entries]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _from_model(entry: JsonObject) -> bool:
    return entry.get("role") == "assistant" or entry.get("type") in _MODEL_ITEMS


def _texts(entry: JsonObject) -> Iterable[str]:
    content = entry.get("content")
    if isinstance(content, str):
        yield content
    for block in _objects(content):
        if isinstance(block.get("text"), str):
            yield block["text"]


def _results(entries: list[JsonObject]) -> Iterable[str]:
    """The results since the model spoke: blocks of the last entry, or entries of their own."""
    fresh = list(takewhile(lambda entry: not _from_model(entry), reversed(entries)))
    for entry in reversed(fresh):
        if entry.get("type") in _RESULT_ITEMS:
            yield from _texts({"content": entry.get("output")})
        elif entry.get("role") == "tool":
            yield from _texts(entry)
    for block in _objects(entries[-1].get("content")) if entries else ():
        if block.get("type") == "tool_result":
            yield from _texts(block)


def _tool_name(tool: JsonObject) -> str:
    return str(tool.get("name") or _inside(tool.get("function"), "name") or "")


def _inside(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


MOST_MARKS = 4
_MARK = "cache_control"
_TTLS = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}
_UNMARKABLE = ("thinking", "redacted_thinking")
_SLICE = STEP * BYTES_PER_TOKEN
_CREDENTIALS = ("x-api-key", "authorization", "api-key")
# A signature differs from request to request; the key that signs does not.
_SIGNED_BY = re.compile(r"Credential=([^/,\s]+)")
_AUTOMATIC = ("openai-chat", "openai-responses")


def read_prompt(asked: ClientRequest, dialect: str) -> Prompt | ProviderRefusal:
    """The prompt of a request, or how the vendor refuses its marks."""
    if dialect in _AUTOMATIC:
        return _unmarked(asked)
    return _marked(asked)


# --- Anthropic: blocks and marks ---------------------------------------------------------


def _marked(asked: ClientRequest) -> Prompt | ProviderRefusal:
    pieces = list(_pieces(asked.body))
    automatic = asked.body.get(_MARK)
    if isinstance(automatic, dict):
        _place_automatic(pieces, automatic)
    refusal = _bad_marks(pieces)
    if refusal is not None:
        return refusal
    if all(piece.mark is None for piece in pieces):
        return Prompt(asked.model, (PromptBlock(b"", asked.input_tokens),))
    blocks: list[PromptBlock] = []
    size = 0
    for piece in pieces:
        content = piece.identity
        before, size = size, size + len(content)
        tokens = size // BYTES_PER_TOKEN - before // BYTES_PER_TOKEN
        blocks.append(PromptBlock(piece.context + content, tokens, piece.ttl))
    rest = max(0, asked.input_tokens - size // BYTES_PER_TOKEN)
    blocks.append(PromptBlock(b"", rest))
    return Prompt(asked.model, tuple(blocks), _account(asked.headers))


class _Piece:
    """One block of the request and where it stands; `context` is what else decides its prefix."""

    __slots__ = ("content", "context", "mark", "place")

    def __init__(self, place: str, content: object, context: bytes = b"") -> None:
        self.place = place
        self.context = context
        self.content = content
        self.mark: Mapping[str, Any] | None = None
        if isinstance(content, dict) and isinstance(content.get(_MARK), dict):
            self.mark = content[_MARK]

    @property
    def ttl(self) -> float | None:
        """How long the prefix that ends here is to be kept; None without a mark."""
        return None if self.mark is None else _TTLS.get(str(self.mark.get("ttl", "5m")))

    @property
    def identity(self) -> bytes:
        """The block without marks, its own or those inside it."""
        return _written(_without_marks(self.content))


def _pieces(body: Mapping[str, Any]) -> Iterator[_Piece]:
    for number, tool in enumerate(_listed(body.get("tools"))):
        yield _Piece(f"tools.{number}", tool, b"tool:")
    for number, block in enumerate(_blocks(body.get("system"))):
        yield _Piece(f"system.{number}", block, b"system:")
    # A change of these leaves the caches of tools and system alone, and none of the messages'.
    context = _written([body.get("tool_choice"), body.get("thinking")])
    for number, message in enumerate(_listed(body.get("messages"))):
        if not isinstance(message, dict):
            continue
        context += str(message.get("role")).encode() + b":"
        for inner, block in enumerate(_blocks(message.get("content"))):
            yield _Piece(f"messages.{number}.content.{inner}", block, context)
            context = b""


def _place_automatic(pieces: list[_Piece], mark: JsonObject) -> None:
    """Mark the last block that can be marked, unless the client has."""
    for piece in reversed(pieces):
        kind = piece.content.get("type") if isinstance(piece.content, dict) else "text"
        empty = kind == "text" and isinstance(piece.content, dict) and not piece.content.get("text")
        if kind in _UNMARKABLE or empty:
            continue
        if piece.mark is None:
            piece.mark = mark
        return


def _bad_marks(pieces: list[_Piece]) -> ProviderRefusal | None:
    marked = [piece for piece in pieces if piece.mark is not None]
    if len(marked) > MOST_MARKS:
        return _invalid(
            f"A maximum of {MOST_MARKS} blocks with cache_control may be provided."
            f" Found {len(marked)}."
        )
    shorter = False
    for piece in marked:
        if piece.ttl is None:
            return _invalid(f"{piece.place}.cache_control.ttl: Input should be '5m' or '1h'")
        if shorter and piece.ttl > FIVE_MINUTES:
            return _invalid(
                f"{piece.place}.cache_control.ttl: a ttl='1h' cache_control block must not come"
                " after a ttl='5m' cache_control block. Note that blocks are processed in the"
                " following order: `tools`, `system`, `messages`."
            )
        shorter = shorter or piece.ttl <= FIVE_MINUTES
    return None


def _invalid(message: str) -> ProviderRefusal:
    return ProviderRefusal(400, error_body("invalid_request_error", message))


def _without_marks(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_marks(value) for name, value in content.items() if name != _MARK}
    return [_without_marks(item) for item in content] if isinstance(content, list) else content


# --- OpenAI: one text in steps -----------------------------------------------------------


def _unmarked(asked: ClientRequest) -> Prompt:
    body = asked.body
    given = body.get("messages") or body.get("input")
    items = [*_listed(body.get("tools")), body.get("instructions"), *_blocks(given)]
    text = b"\n".join(_written(item) for item in items if item is not None)
    blocks = [
        PromptBlock(text[at : at + _SLICE], len(text[at : at + _SLICE]) // BYTES_PER_TOKEN)
        for at in range(0, len(text), _SLICE)
    ]
    rest = max(0, asked.input_tokens - sum(block.tokens for block in blocks))
    blocks.append(PromptBlock(b"", rest))
    prompt = Prompt(asked.model, tuple(blocks), _account(asked.headers), automatic=True)
    return replace(
        prompt,
        retention=ONE_DAY if body.get("prompt_cache_retention") == "24h" else FIVE_MINUTES,
        routing_key=str(body.get("prompt_cache_key") or ""),
    )


# --- both --------------------------------------------------------------------------------


def _account(headers: Mapping[str, str]) -> str:
    given = next((headers[name] for name in _CREDENTIALS if headers.get(name)), "")
    signed = _SIGNED_BY.search(given)
    return hashlib.sha256((signed[1] if signed else given).encode()).hexdigest()[:16]


def _written(content: object) -> bytes:
    # Key order and half a surrogate pair stay as the client wrote them.
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _blocks(content: object) -> list[Any]:
    """Content that may be a text instead of a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return _listed(content)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
