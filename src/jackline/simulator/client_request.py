"""Parse a client's request: who sends it, its place in the conversation, and its prompt.

Rules: (1) pure; a body of another shape gives empty values, never an error; (2) what clients wrap
in tags (`<system-reminder>`) is not the user's prompt; (3) prompt blocks are in the order tools,
system, messages, and a cache mark is no part of what it marks; (4) no credential is stored, only
its hash; (5) equal prefixes have equal sizes, whatever follows them; (6) marks that the vendor
rejects are refused with its messages.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self, TypeAlias

from jackline.simulator.exchange import ProviderRefusal
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
MOST_MARKS = 4
_MARK = "cache_control"
_TTLS = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}
_SLICE = STEP * BYTES_PER_TOKEN
_CREDENTIALS = ("x-api-key", "authorization", "api-key")
# A signature differs from request to request; the key that signs does not.
_SIGNED_BY = re.compile(r"Credential=([^/,\s]+)")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request as a reply script sees it.

    `prompt` is the first text of the user, `latest` all text of the last entry, `results` all text
    of the tool results in it. `turn` counts how often the model has answered in this conversation
    (a retry has the same turn), `call` how many requests the same agent made before (a retry
    counts).
    """

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    size: int
    body_hash: str
    prompt: str
    latest: str
    results: str
    turn: int
    call: int

    @property
    def agent(self) -> str:
        """The sub-agent that sends it, or "" for the main thread."""
        return self.headers.get("x-claude-code-agent-id", "")

    @property
    def session(self) -> str:
        """The session that sends it."""
        headers = self.headers
        named = headers.get("x-claude-code-session-id") or headers.get("session-id")
        return named or str(self.body.get("prompt_cache_key") or "")

    @property
    def model(self) -> str:
        """The name of the requested model."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether the answer shall come as events."""
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that the client offers."""
        tools = _objects(self.body.get("tools"))
        return frozenset(
            str(tool.get("name") or _inside(tool.get("function"), "name") or "") for tool in tools
        )

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

    @property
    def encrypted_reasoning(self) -> set[str]:
        """The encrypted reasoning that the client sends back."""
        items = _objects(self.body.get("input"))
        reasoning = [item for item in items if item.get("type") == "reasoning"]
        return {str(item.get("encrypted_content") or "") for item in reasoning}

    @classmethod
    def parse(
        cls,
        path: str,
        headers: Mapping[str, str],
        raw: bytes,
        call: int = 0,
        path_fields: Mapping[str, Any] | None = None,
    ) -> Self | None:
        """The request, or None when its body is not a JSON object.

        `path_fields` are fields that some endpoints have in their path instead of in the body.
        """
        try:
            body = json.loads(raw)
        except ValueError:
            return None
        if not isinstance(body, dict):
            return None
        body |= path_fields or {}
        content = body.get("messages") or body.get("input")
        is_text = isinstance(content, str)
        entries = [{"role": "user", "content": content}] if is_text else _objects(content)
        last = entries[-1] if entries else {}
        from_user = [entry for entry in entries if entry.get("role") == "user"]
        texts = [text for entry in from_user for text in _texts(entry)]
        prompts = [text for text in texts if text and not text.lstrip().startswith("<")]
        # Neighbouring entries of the model count once, so that a batch of calls is one turn.
        by_model = [_is_from_model(entry) for entry in entries]
        starts = zip([False, *by_model], by_model, strict=False)
        return cls(
            path=path,
            headers=headers,
            body=body,
            size=len(raw),
            body_hash=hashlib.sha256(raw).hexdigest()[:16],
            prompt=prompts[0] if prompts else "",
            latest="" if last.get("role") == "tool" else "\n".join(_texts(last)),
            results="\n".join(_results(entries)),
            turn=sum(now and not before for before, now in starts),
            call=call,
        )

    # --- its prompt -----------------------------------------------------------------

    def read_prompt(self, dialect: str) -> Prompt | ProviderRefusal:
        """The prompt of the request, or how the vendor refuses its marks."""
        headers = self.headers
        key = next((headers[name] for name in _CREDENTIALS if headers.get(name)), "")
        signed = _SIGNED_BY.search(key)
        account = hashlib.sha256((signed[1] if signed else key).encode()).hexdigest()[:16]
        if dialect in ("openai-chat", "openai-responses"):
            return self._unmarked_prompt(account)
        return self._marked_prompt(account)

    def _unmarked_prompt(self, account: str) -> Prompt:
        """OpenAI's prompt: one text in equal slices."""
        body = self.body
        content = body.get("messages") or body.get("input")
        items = [*_listed(body.get("tools")), body.get("instructions"), *_blocks(content)]
        text = b"\n".join(_encoded(item) for item in items if item is not None)
        slices = [text[at : at + _SLICE] for at in range(0, len(text), _SLICE)]
        blocks = [PromptBlock(part, len(part) // BYTES_PER_TOKEN) for part in slices]
        rest = max(0, self.input_tokens - sum(block.tokens for block in blocks))
        return Prompt(
            self.model,
            (*blocks, PromptBlock(b"", rest)),
            account,
            automatic=True,
            retention=ONE_DAY if body.get("prompt_cache_retention") == "24h" else FIVE_MINUTES,
            routing_key=str(body.get("prompt_cache_key") or ""),
        )

    def _marked_prompt(self, account: str) -> Prompt | ProviderRefusal:
        """Anthropic's prompt: blocks, and marks on some of them."""
        pieces = list(self._pieces())
        automatic = self.body.get(_MARK)
        if isinstance(automatic, dict):
            # It marks the last block that can be marked, unless the client has marked it.
            last = next((piece for piece in reversed(pieces) if piece.can_be_marked), None)
            if last is not None and last.mark is None:
                last.mark = automatic
        marked = [piece for piece in pieces if piece.mark is not None]
        fault = _fault_in_marks(marked)
        if fault is not None:
            return ProviderRefusal.of_api(400, "invalid_request_error", fault)
        if not marked:
            return Prompt(self.model, (PromptBlock(b"", self.input_tokens),))
        blocks: list[PromptBlock] = []
        size = 0
        for piece in pieces:
            content = _encoded(_without_marks(piece.content))
            before, size = size, size + len(content)
            tokens = size // BYTES_PER_TOKEN - before // BYTES_PER_TOKEN
            blocks.append(PromptBlock(piece.context + content, tokens, piece.ttl))
        rest = max(0, self.input_tokens - size // BYTES_PER_TOKEN)
        return Prompt(self.model, (*blocks, PromptBlock(b"", rest)), account)

    def _pieces(self) -> Iterator[_Piece]:
        body = self.body
        for number, tool in enumerate(_listed(body.get("tools"))):
            yield _Piece(f"tools.{number}", tool, b"tool:")
        for number, block in enumerate(_blocks(body.get("system"))):
            yield _Piece(f"system.{number}", block, b"system:")
        # A change of these leaves the caches of tools and system alone, and none of the messages'.
        context = _encoded([body.get("tool_choice"), body.get("thinking")])
        for number, message in enumerate(_listed(body.get("messages"))):
            if not isinstance(message, dict):
                continue
            context += str(message.get("role")).encode() + b":"
            for inner, block in enumerate(_blocks(message.get("content"))):
                yield _Piece(f"messages.{number}.content.{inner}", block, context)
                context = b""


def _is_from_model(entry: JsonObject) -> bool:
    return entry.get("role") == "assistant" or entry.get("type") in _MODEL_ITEMS


def _texts(entry: JsonObject) -> list[str]:
    content = entry.get("content")
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in _objects(content) if isinstance(block.get("text"), str)]


def _results(entries: list[JsonObject]) -> Iterator[str]:
    """The results since the model's last entry: blocks of the last entry, or own entries."""
    new = list(takewhile(lambda entry: not _is_from_model(entry), reversed(entries)))
    for entry in reversed(new):
        if entry.get("type") in _RESULT_ITEMS:
            yield from _texts({"content": entry.get("output")})
        elif entry.get("role") == "tool":
            yield from _texts(entry)
    for block in _objects(entries[-1].get("content")) if entries else ():
        if block.get("type") == "tool_result":
            yield from _texts(block)


def _inside(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class _Piece:
    """One block of an Anthropic request and its place; `context` else decides its prefix."""

    __slots__ = ("content", "context", "mark", "place")

    def __init__(self, place: str, content: object, context: bytes) -> None:
        self.place = place
        self.context = context
        self.content = content
        mark = _inside(content, _MARK)
        self.mark: Mapping[str, Any] | None = mark if isinstance(mark, dict) else None

    @property
    def ttl(self) -> float | None:
        """How long the prefix that ends here is stored; None without a mark."""
        return None if self.mark is None else _TTLS.get(str(self.mark.get("ttl", "5m")))

    @property
    def can_be_marked(self) -> bool:
        if not isinstance(self.content, dict):
            return True
        kind = self.content.get("type")
        is_empty = kind == "text" and not self.content.get("text")
        return kind not in ("thinking", "redacted_thinking") and not is_empty


def _fault_in_marks(marked: list[_Piece]) -> str | None:
    """What the vendor says against the marks, or None."""
    if len(marked) > MOST_MARKS:
        return (
            f"A maximum of {MOST_MARKS} blocks with cache_control may be provided."
            f" Found {len(marked)}."
        )
    after_short = False
    for piece in marked:
        if piece.ttl is None:
            return f"{piece.place}.cache_control.ttl: Input should be '5m' or '1h'"
        if after_short and piece.ttl > FIVE_MINUTES:
            return (
                f"{piece.place}.cache_control.ttl: a ttl='1h' cache_control block must not come"
                " after a ttl='5m' cache_control block. Note that blocks are processed in the"
                " following order: `tools`, `system`, `messages`."
            )
        after_short = after_short or piece.ttl <= FIVE_MINUTES
    return None


def _without_marks(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_marks(value) for name, value in content.items() if name != _MARK}
    return [_without_marks(item) for item in content] if isinstance(content, list) else content


def _encoded(content: object) -> bytes:
    # Key order and half a surrogate pair stay as the client wrote them.
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _blocks(content: object) -> list[Any]:
    """Content that may be a text instead of a list of blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else _listed(content)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
