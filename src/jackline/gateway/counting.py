"""Count what became of calls since the gateway started.

Laws: (1) every ended call is counted once; (2) counting is cheap enough for every call.
Not here: durable totals (journal/).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from jackline.events import CallEnded

# A call that waited for less has not been held, only passed through.
HELD_FROM = 1.0


@dataclass(slots=True)
class Counts:
    """Figures since the start."""

    outcomes: Counter[str] = field(default_factory=Counter)
    held_and_delivered: int = 0
    joined: int = 0
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def count(self, event: CallEnded) -> None:
        """One more call is over."""
        self.outcomes[event.outcome] += 1
        self.attempts += event.attempts
        self.input_tokens += event.input_tokens
        self.output_tokens += event.output_tokens
        if event.waited >= HELD_FROM and event.outcome in ("answered", "shortened"):
            self.held_and_delivered += 1
