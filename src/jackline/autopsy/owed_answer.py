"""Notice that an agent ended without the structured answer that was asked of it.

Laws: (1) the tool's name, its result's mark and the classifier tell, never words matched here; (2)
an answer that was accepted settles everything before it.
Not here: misses that a workflow reports (workflow.py, told.py).
"""

from __future__ import annotations

from datetime import datetime

from jackline.autopsy.records import Block
from jackline.failures import Kind, Observation, Where, classify

ANSWERING_TOOL = "StructuredOutput"
_LONGEST_NUDGE = 2_000


class OwedAnswer:
    """What is known about the structured answer of one agent."""

    def __init__(self) -> None:
        self._words: str | None = None
        self._stamp: str | None = None
        self._calls: set[str] = set()

    @property
    def expected(self) -> bool:
        """Whether a call of the answering tool waits for its result."""
        return bool(self._calls)

    def reminded(self, words: str, stamp: str | None, now: datetime) -> None:
        """The client put in a word of its own; it may be a reminder that the answer is owed."""
        if not words or len(words) > _LONGEST_NUDGE:
            return
        seen = Observation(Where.TRANSCRIPT, text=words)
        if classify(seen, now=now).kind is Kind.MISSING_STRUCTURED_OUTPUT:
            self._words, self._stamp = words, stamp

    def called(self, call: Block) -> None:
        """The agent called a tool."""
        if call.name == ANSWERING_TOOL:
            self._calls.add(call.id or "")

    def answered(self, result: Block, words: str, stamp: str | None) -> None:
        """A tool gave its result."""
        if (result.tool_use_id or "") not in self._calls:
            return
        self._calls.discard(result.tool_use_id or "")
        refused = result.is_error is True
        self._words, self._stamp = (words, stamp) if refused else (None, None)

    @property
    def missing(self) -> tuple[str, str | None] | None:
        """The words and the time that tell of the miss, if the answer never came."""
        return None if self._words is None else (self._words, self._stamp)
