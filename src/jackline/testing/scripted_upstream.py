"""Play an upstream from a script, on any clock and without a socket.

Laws: (1) each attempt takes the next step of its lane's script, and the last step again and again;
(2) it keeps count of what was attempted, so that tests read the truth here.
Not here: limits and faults that depend on load (simulator/).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from jackline.calls import Answered, Began, Heard, Rejected, Request, UpstreamEvent
from jackline.clock import Clock
from jackline.lanes import Usage


@dataclass(frozen=True, slots=True)
class Step:
    """What one attempt meets: a wait, then an answer, an error, a break or silence."""

    says: bytes = b"event: message_stop\n\n"
    after: float = 1.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    breaks: OSError | None = None
    truncated: bool = False
    silent: bool = False


@dataclass(slots=True)
class ScriptedUpstream:
    """An upstream whose lanes each follow a script; lanes without one always answer."""

    clock: Clock
    scripts: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    open_now: int = 0

    async def attempt(self, request: Request, lane: str) -> AsyncGenerator[UpstreamEvent, None]:
        """The events of the next step of the lane's script."""
        script = self.scripts.get(lane, (Step(),))
        step = script[min(self.attempts.count(lane), len(script) - 1)]
        self.attempts.append(lane)
        self.open_now += 1
        try:
            if step.silent:
                await self.clock.sleep(1_000_000)
            await self.clock.sleep(step.after)
            if step.breaks is not None:
                raise step.breaks
            if step.status != 200:
                yield Rejected(step.status, step.headers, step.body)
                return
            yield Began(step.headers)
            yield Heard(step.says)
            await self.clock.sleep(step.after)
            if not step.truncated:
                yield Answered(Usage(request.input_tokens, len(step.says)))
        finally:
            self.open_now -= 1
