"""Read the prompt of a request as prompt caches see it: blocks in order, marks, account.

Rules: (1) pure; (2) blocks are in the order tools, system, messages, and a mark is no part of what
it marks; (3) no credential is kept, only its hash; (4) equal prefixes have equal sizes, whatever
follows them; (5) marks that the vendor rejects are refused in its words.
What caches make of a prompt is in prompt_cache.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jackline.simulator.conversation import BYTES_PER_TOKEN, Asked, JsonObject
from jackline.simulator.prompt_cache import (
    FIVE_MINUTES,
    ONE_DAY,
    ONE_HOUR,
    STEP,
    Block,
    Prompt,
)
from jackline.simulator.refusals import Refusal, error_body

MOST_MARKS = 4
_MARK = "cache_control"
_TTLS = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}
_UNMARKABLE = ("thinking", "redacted_thinking")
_SLICE = STEP * BYTES_PER_TOKEN
_CREDENTIALS = ("x-api-key", "authorization", "api-key")
# A signature differs from request to request; the key that signs does not.
_SIGNED_BY = re.compile(r"Credential=([^/,\s]+)")
_AUTOMATIC = ("openai-chat", "openai-responses")


def read_prompt(asked: Asked, dialect: str) -> Prompt | Refusal:
    """The prompt of a request, or how the vendor refuses its marks."""
    if dialect in _AUTOMATIC:
        return _unmarked(asked)
    return _marked(asked)


# --- Anthropic: blocks and marks ---------------------------------------------------------


def _marked(asked: Asked) -> Prompt | Refusal:
    pieces = list(_pieces(asked.body))
    automatic = asked.body.get(_MARK)
    if isinstance(automatic, dict):
        _place_automatic(pieces, automatic)
    refusal = _bad_marks(pieces)
    if refusal is not None:
        return refusal
    if all(piece.mark is None for piece in pieces):
        return Prompt(asked.model, (Block(b"", asked.input_tokens),))
    blocks: list[Block] = []
    size = 0
    for piece in pieces:
        content = piece.identity
        before, size = size, size + len(content)
        tokens = size // BYTES_PER_TOKEN - before // BYTES_PER_TOKEN
        blocks.append(Block(piece.context + content, tokens, piece.ttl))
    rest = max(0, asked.input_tokens - size // BYTES_PER_TOKEN)
    blocks.append(Block(b"", rest))
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


def _bad_marks(pieces: list[_Piece]) -> Refusal | None:
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


def _invalid(message: str) -> Refusal:
    return Refusal(400, error_body("invalid_request_error", message))


def _without_marks(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_marks(value) for name, value in content.items() if name != _MARK}
    return [_without_marks(item) for item in content] if isinstance(content, list) else content


# --- OpenAI: one text in steps -----------------------------------------------------------


def _unmarked(asked: Asked) -> Prompt:
    body = asked.body
    given = body.get("messages") or body.get("input")
    items = [*_listed(body.get("tools")), body.get("instructions"), *_blocks(given)]
    text = b"\n".join(_written(item) for item in items if item is not None)
    blocks = [
        Block(text[at : at + _SLICE], len(text[at : at + _SLICE]) // BYTES_PER_TOKEN)
        for at in range(0, len(text), _SLICE)
    ]
    rest = max(0, asked.input_tokens - sum(block.tokens for block in blocks))
    blocks.append(Block(b"", rest))
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
