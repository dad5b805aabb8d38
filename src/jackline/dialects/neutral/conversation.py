"""The conversation between two dialects: its parts, turns and tools, and its ids.

Rules: (1) plain immutable values; (2) each part knows its path in the request, so that a writer
can refuse it by name; (3) JSON that only passes through (arguments, schemas) stays as it was
written; (4) the same id always becomes the same id, so that calls and results stay bound; an id
that the other side accepts is not changed, and two ids of one answer never become one.
Not here: reading it (request.py), writing it (openai_chat/, openai_responses/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image by its address, which may hold the data itself."""

    at: str
    url: str


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A file by its address, which may hold the data itself."""

    at: str
    title: str | None
    url: str

    @property
    def name(self) -> str:
        """What the file is called."""
        return self.title or "document.pdf"

    @property
    def inline(self) -> bool:
        """Whether the address is the file itself."""
        return self.url.startswith("data:")


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """What a model thought before it spoke."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call that the model made; `arguments` is JSON."""

    at: str
    id: str
    name: str
    arguments: str


VisiblePart: TypeAlias = TextPart | ImagePart | DocumentPart


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What came of a call."""

    at: str
    id: str
    parts: tuple[VisiblePart, ...]
    failed: bool


ContentPart: TypeAlias = VisiblePart | ThinkingPart | ToolCallPart | ToolResultPart
Role: TypeAlias = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """What one side says before the other answers."""

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
class ToolChoice:
    """Whether, and which, tool must be called."""

    kind: Literal["auto", "any", "none", "tool"]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ConversationRequest:
    """A whole request."""

    system: tuple[TextPart, ...]
    turns: tuple[ConversationTurn, ...]
    tools: tuple[ToolDefinition, ...]
    choice: ToolChoice | None
    one_call_at_a_time: bool
    max_tokens: int | None
    temperature: msgspec.Raw | None
    top_p: msgspec.Raw | None
    stops: tuple[str, ...]
    effort: str | None
    schema: msgspec.Raw | None
    user: str | None
    stream: bool


CLAUDE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Shorter ids are counters: they come again in the next answer, and Claude wants each only once.
_LEAST_UNIQUE = 16
_DIGITS = 24
_LONGEST_NAME = 64
# Of ids in answers. Ids are a few dozen letters long; the id of an answer is hashed for each of its
# calls, and may not make that dear.
_LONGEST_ID = 256


def digest(*parts: str) -> str:
    """Some letters that stand for these parts."""
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_DIGITS]


def _bare(foreign: str, *prefixes: str) -> str:
    """The id without the mark of its kind."""
    for prefix in prefixes:
        if foreign.startswith(prefix):
            return foreign.removeprefix(prefix)
    return foreign


def message_id(foreign: str, otherwise: bytes) -> str:
    """Anthropic's kind of id for an answer; from its bytes when it has none."""
    if len(foreign) <= _LONGEST_ID and CLAUDE_ID.fullmatch(foreign):
        return f"msg_{_bare(foreign, 'chatcmpl-', 'resp_', 'resp-', 'msg_')}"
    if foreign:
        return f"msg_{digest(foreign)}"
    return f"msg_{sha256(otherwise).hexdigest()[:_DIGITS]}"


class ToolIds:
    """Ids for the tool calls of one answer."""

    __slots__ = ("_answer", "_used")

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._used: set[str] = set()

    def of(self, foreign: str) -> str:
        """Anthropic's kind of id for the next call of this answer."""
        own = f"toolu_{_bare(foreign, 'call_', 'toolu_')}"
        if (
            not _LEAST_UNIQUE <= len(foreign) <= _LONGEST_ID
            or not CLAUDE_ID.fullmatch(own)
            or own in self._used
        ):
            own = f"toolu_{digest(self._answer, foreign, str(len(self._used)))}"
        self._used.add(own)
        return own


def call_id(known: str, longest: int) -> str:
    """The id of a call in the other dialect, the same for the call and for its result."""
    return known if 0 < len(known) <= longest else f"call_{digest(known)}"


def tool_name(real: str) -> str:
    """A tool's name as OpenAI takes it: at most 64 plain letters."""
    plain = _NOT_IN_A_NAME.sub("_", real)
    if plain == real and 0 < len(real) <= _LONGEST_NAME:
        return real
    return f"{plain[: _LONGEST_NAME - 9]}_{digest(real)[:8]}"
