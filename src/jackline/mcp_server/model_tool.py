"""A tool as a model sees it, free of any protocol's types.

Laws: (1) descriptions are written for a model: what it gives, when to use it; (2) the input is
checked against the schema before the tool sees it; (3) what a tool returns is plain JSON and a text
that says the same; (4) a failure a model can act on is a `JacklineError`, with its next step.
Not here: the protocol (server.py), the tools (tools/).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

JsonObject: TypeAlias = dict[str, object]
Progress: TypeAlias = Callable[[str], Awaitable[None]]
"""Tells the client, while it waits, what is going on."""


async def _unheard(_words: str) -> None:
    """Nobody listens."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever calls a tool, as far as the tool needs to know."""

    progress: Progress = _unheard
    say: Progress = _unheard
    """Tells the client something later, unasked, where the protocol allows it."""
    client: str = ""
    """The program's name, as it gave it."""
    session: str = ""
    """The client's own session, where it told."""
    folder: Path | None = None
    """Where the client works; None when it did not tell."""
    patience: float | None = None
    """Seconds that the client gives a call, where it told."""
    hears_progress: bool = False
    took_back: Callable[[], bool] = _never
    """Whether the client itself cancelled this call; a lost connection is no cancelling."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a tool gives back: a text for the model, the same as JSON, and whether it failed."""

    text: str
    data: JsonObject
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ModelTool:
    """One tool."""

    name: str
    description: str
    input_schema: JsonObject
    run: Callable[[JsonObject, Caller], Awaitable[Told]]
    read_only: bool = False
