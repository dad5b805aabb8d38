"""A tool as a model sees it, free of any protocol's types.

Laws: (1) descriptions are written for a model: what it gives, when to use it; (2) the input is
checked against the schema before the tool sees it; (3) what a tool returns is plain JSON and a text
that says the same; (4) a failure a model can act on is a `JacklineError`, with its next step.
Not here: the protocol (server.py), the tools (tools/).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

JsonObject: TypeAlias = dict[str, object]
Progress: TypeAlias = Callable[[str], Awaitable[None]]
"""Tells the client, while it waits, what is going on."""


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
    run: Callable[[JsonObject, Progress], Awaitable[Told]]
    read_only: bool = False
