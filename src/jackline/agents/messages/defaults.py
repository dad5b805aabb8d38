"""Name what an agent gets when its task says nothing: model, output limit, window, words.

Laws: (1) each number and sentence stands here and nowhere else, with its reason; (2) frozen.
Not here: the user's own choices (task.py), prices (prices.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jackline.agents.prices import Price

STRUCTURED_OUTPUT = "StructuredOutput"
"""The tool by which a structured answer is given; Claude Code's word for it."""

CHARACTERS_PER_TOKEN = 4
"""Roughly, where the vendor has not counted yet."""

UNATTENDED = (
    "You carry out one task on your own: nobody watches, and nobody can answer a question. Use "
    "the tools you have, decide open points yourself, and end with the result itself, not with "
    "a report of what you plan to do. Calls in one turn run side by side."
)
ASKS_FOR_STRUCTURE = (
    f"Give your final answer by calling the tool {STRUCTURED_OUTPUT}, once and alone, when "
    "everything else is done. Text outside of that call is not read."
)


@dataclass(frozen=True, slots=True)
class MessagesSettings:
    """How the runner works where a task does not say otherwise."""

    model: str = "claude-opus-4-8"
    # All current models take it; answers are streamed, so that length costs no patience.
    max_tokens: int = 32_000
    # What every current model takes without a beta header.
    window: int = 200_000
    # Shortened when so much of the window is used, and then down to the second share at once:
    # every shortening empties the vendor's cache of this conversation, so they should be rare.
    full_at: float = 0.75
    shorten_to: float = 0.4
    # Asked again for a missing or invalid answer.
    most_reasks: int = 2
    # Cut off at the output limit, or paused by the vendor, so often in a row.
    most_continuations: int = 5
    # Characters of one tool's result that a model is shown; all results of a turn together get
    # no more than the share of the window that follows.
    longest_result: int = 60_000
    results_share: float = 0.25
    # Tools of one turn that run at once.
    tools_at_once: int = 16
    prices: Mapping[str, Price] = field(default_factory=dict)

    def room_for_result(self, calls: int) -> int:
        """How many characters the result of one of so many calls may have."""
        together = self.results_share * self.window * CHARACTERS_PER_TOKEN
        return min(self.longest_result, int(together / max(1, calls)))
