"""A conversation in no dialect: its parts, turns and tools, and its ids.

Rules: (1) plain immutable values; (2) each part has its path in the request, so that a writer can
refuse it by name; (3) JSON that is only copied (arguments, schemas) stays as written; (4) the same
id always becomes the same id, so that calls and results stay linked; an id that the target accepts
is not changed, and two ids of one answer never become one.
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
    """Reasoning of the model."""

    at: str
    text: str


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
class ToolChoice:
    """Whether a tool must be called, and which."""

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
