"""The conversation between two dialects: what is said, by whom, with which tools.

Laws: (1) plain immutable values; (2) each part knows its path in the request, so that a writer can
refuse it by name; (3) JSON that only passes through (arguments, schemas) stays as it was written.
Not here: reading it (request.py), writing it (openai_chat/, openai_responses/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec


@dataclass(frozen=True, slots=True)
class Words:
    """Plain text."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An image by its address, which may hold the data itself."""

    at: str
    url: str


@dataclass(frozen=True, slots=True)
class Paper:
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
class Thought:
    """What a model thought before it spoke."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made; `arguments` is JSON."""

    at: str
    id: str
    name: str
    arguments: str


Shown: TypeAlias = Words | Picture | Paper


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call."""

    at: str
    id: str
    parts: tuple[Shown, ...]
    failed: bool


Part: TypeAlias = Shown | Thought | ToolCall | ToolResult
Role: TypeAlias = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says before the other answers."""

    at: str
    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    at: str
    name: str
    description: str | None
    schema: msgspec.Raw
    strict: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether, and which, tool must be called."""

    kind: Literal["auto", "any", "none", "tool"]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole request."""

    system: tuple[Words, ...]
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...]
    choice: Choice | None
    one_call_at_a_time: bool
    max_tokens: int | None
    temperature: msgspec.Raw | None
    top_p: msgspec.Raw | None
    stops: tuple[str, ...]
    effort: str | None
    schema: msgspec.Raw | None
    user: str | None
    stream: bool
