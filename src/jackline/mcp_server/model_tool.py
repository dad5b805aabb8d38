"""A tool as a model sees it, free of any protocol's types, and the calls that clients cancelled.

Rules: (1) descriptions are written for a model: what the tool returns and when to use it; (2) the
input is checked against the schema before the tool sees it; (3) a tool returns plain JSON and a
text with the same content; (4) a failure that a model can act on is a `JacklineError` with its next
step; (5) only the client's own message cancels a call: a broken connection, an ended session and a
client's timeout cancel nothing; cancelled calls are remembered up to a bounded number.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jackline.control.http_handler import ServiceRequest

JsonObject: TypeAlias = dict[str, object]
Progress: TypeAlias = Callable[[str], Awaitable[None]]
"""Tells the client, while it waits, what is going on."""


async def discard_progress(_words: str) -> None:
    """Nobody listens."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Whoever calls a tool, as far as the tool needs to know."""

    progress: Progress = discard_progress
    say: Progress = discard_progress
    """Tells the client something later, unasked, where the protocol allows it."""
    client: str = ""
    """The program's name, as it gave it."""
    session: str = ""
    """The client's own session, where it sent one."""
    folder: Path | None = None
    """Where the client works; None when it did not say."""
    patience: float | None = None
    """Seconds that the client gives a call, where it says so."""
    hears_progress: bool = False
    parent_task: str = ""
    """The agent of ours for whose program the client works; empty for a person's client."""
    is_cancelled: Callable[[], bool] = _never
    """Whether the client itself cancelled this call; a lost connection is no cancelling."""


@dataclass(frozen=True, slots=True)
class ToolReply:
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
    run: Callable[[JsonObject, ToolCaller], Awaitable[ToolReply]]
    read_only: bool = False


_METHOD = b"notifications/cancelled"
_SESSION = b"mcp-session-id"
_MOST_CALLS = 1_000


class CancelledCalls:
    """The calls that were cancelled, by session and request."""

    def __init__(self) -> None:
        self._cancelled: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, http_request: ServiceRequest) -> None:
        """Take note, if this message cancels a call; the call's own end comes after."""
        if _METHOD not in bytes(http_request.body):
            return
        try:
            message = json.loads(bytes(http_request.body))
            params = message["params"] if message.get("method") == _METHOD.decode() else {}
            request, reason = params.get("requestId"), str(params.get("reason") or "")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return  # whatever it is, the protocol itself refuses it
        # Clients' libraries also cancel what took too long for them: nobody wants that work gone.
        if request is not None and "timed out" not in reason.lower():
            session = (http_request.header(_SESSION) or b"").decode("latin-1")
            self._cancelled[session, str(request)] = None
            while len(self._cancelled) > _MOST_CALLS:
                self._cancelled.popitem(last=False)

    def asker(self, session: str, request: object) -> Callable[[], bool]:
        """Something that says whether this call was cancelled by its client."""
        return lambda: (session, str(request)) in self._cancelled
