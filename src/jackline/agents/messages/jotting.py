"""Jot down what running tools print, often enough to be worth something after a crash.

Laws: (1) what a tool printed is jotted a quarter of a second later at the latest, unless the tool
has ended by then; (2) a tool that prints without end costs a bounded number of characters.
Not here: what the model is shown of it (tool_turn.py).
"""

from __future__ import annotations

import asyncio

from jackline.agents.messages.conversation import TOOL_OUTPUT
from jackline.agents.messages.log import Log
from jackline.clock import Clock

_SOON = 0.25
_MOST_PER_CALL = 64 * 1024


class Jotter:
    """Gathers the output of the calls of one batch."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._waiting: dict[str, list[str]] = {}
        self._jotted: dict[str, int] = {}
        self._flushing: asyncio.Task[None] | None = None

    def heard(self, call_id: str, text: str) -> None:
        """A call printed this."""
        room = _MOST_PER_CALL - self._jotted.get(call_id, 0)
        if room <= 0 or not text:
            return
        self._jotted[call_id] = self._jotted.get(call_id, 0) + len(text)
        self._waiting.setdefault(call_id, []).append(text[:room])
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def close(self) -> None:
        """Jot down the rest."""
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
        self._flush()

    async def _flush_soon(self) -> None:
        await self._clock.sleep(_SOON)
        self._flushing = None
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        running = {call.id for call in self._log.talk.calls if call.ended is None}
        for call_id, pieces in waiting.items():
            if call_id in running:
                self._log.jot(TOOL_OUTPUT, {"id": call_id, "text": "".join(pieces)})
