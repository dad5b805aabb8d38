"""Read an agent's notebook: what its processes have done so far, and how the last one ended.

Laws: (1) pure; whatever an older version wrote that makes no sense now is passed over; (2) an
answer that came in several pieces is counted once; (3) what a process told that it had cost in all
counts more than the sum of what was seen of it.
Not here: writing the notebook (carrying.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jackline.agents.outcome import Usage
from jackline.agents.ports import Entry
from jackline.agents.process.going_on import ToolCall
from jackline.agents.process.marks import Mark
from jackline.agents.task import JsonObject

STARTED = "process"
BEGAN = "began"
ANSWER = "answer"
RESULT = "result"
ENDED = "ended"
DONE = "done"


@dataclass(slots=True)
class History:
    """What the notebook tells."""

    session_id: str | None = None
    model: str | None = None
    mark: Mark | None = None
    """The process that was started last, if nothing tells of its end."""
    answers: dict[str, Usage] = field(default_factory=dict)
    turns: int = 0
    settled: Usage = field(default_factory=Usage)
    """Of the processes that told what they cost."""
    untold: Usage = field(default_factory=Usage)
    """Of those that told no cost, or did not get to tell."""
    counted: Usage | None = None
    """What the program's own count stood at when the last process was started."""
    cost: float | None = None
    last_end: str = ""
    text: str = ""
    calls: dict[str, ToolCall] = field(default_factory=dict)
    """What the agent itself has called, in its order."""
    results: dict[str, str] = field(default_factory=dict)
    """What came of it, by call id."""
    done: JsonObject | None = None

    @property
    def begun(self) -> bool:
        """Whether a session was begun."""
        return self.session_id is not None

    @property
    def usage(self) -> Usage:
        """All tokens that are known of."""
        return self.settled + self.unpriced

    @property
    def unpriced(self) -> Usage:
        """The tokens of which nobody told what they cost."""
        return self.untold + self._seen()

    def _seen(self) -> Usage:
        return sum(self.answers.values(), Usage())

    def take(self, kind: str, data: JsonObject) -> None:
        """Add one line."""
        if kind == STARTED:
            self._started(data)
        elif kind == BEGAN:
            session = _text(data.get("session"))
            if session and not session.startswith("-"):  # a program would take it for an option
                self.session_id = session
            self.model = _text(data.get("model")) or self.model
        elif kind == ANSWER:
            self._answered(data)
        elif kind == RESULT:
            self.results[_text(data.get("id")) or ""] = _text(data.get("text")) or ""
        elif kind == ENDED:
            self._ended(data)
        elif kind == DONE:
            self.done = data

    def _started(self, data: JsonObject) -> None:
        counted = data.get("counted")
        now = usage_from(counted) if isinstance(counted, dict) else None
        lost = self._seen()
        if self.mark is not None and now is not None and self.counted is not None:
            lost = beyond(now, self.counted)
        # A process that nothing more was heard of has cost at least what was seen of it.
        self.untold = self.untold + lost
        self.answers.clear()
        self.counted = now
        self.mark = _mark(data)

    def _answered(self, data: JsonObject) -> None:
        name = _text(data.get("id")) or f"without id, {len(self.answers)}"
        is_main = data.get("agent") is None
        if is_main and name not in self.answers:
            self.turns += 1
        if is_main:
            self.text = _text(data.get("text")) or self.text
            self._called(data.get("calls"))
        self.answers[name] = usage_from(data.get("usage"))

    def _called(self, calls: object) -> None:
        for call in calls if isinstance(calls, list) else ():
            name = _text(call.get("id")) if isinstance(call, dict) else None
            if name is not None:
                given = _text(call.get("input")) or ""
                self.calls[name] = ToolCall(name, _text(call.get("name")) or "", given)

    def _ended(self, data: JsonObject) -> None:
        self.mark = None
        self.last_end = _text(data.get("says")) or ""
        told, cost = data.get("usage"), data.get("cost")
        if isinstance(cost, int | float):
            self.cost = (self.cost or 0.0) + cost
        if isinstance(told, dict):
            # Of the whole process: what was seen of it piece by piece is in it.
            self.answers.clear()
            if isinstance(cost, int | float):
                self.settled = self.settled + usage_from(told)
            else:
                self.untold = self.untold + usage_from(told)
        turns = data.get("turns")
        if isinstance(turns, int):
            self.turns = turns


def history_of(entries: Iterable[Entry]) -> History:
    """What these lines tell."""
    history = History()
    for entry in entries:
        history.take(entry.kind, entry.data)
    return history


def beyond(total: Usage, told: Usage) -> Usage:
    """What of the total was not told yet."""
    return Usage(
        max(0, total.input_tokens - told.input_tokens),
        max(0, total.output_tokens - told.output_tokens),
        max(0, total.cache_read_tokens - told.cache_read_tokens),
        max(0, total.cache_write_tokens - told.cache_write_tokens),
        max(0, total.cache_write_1h_tokens - told.cache_write_1h_tokens),
    )


def usage_to(usage: Usage) -> JsonObject:
    """A usage as JSON."""
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
        "cache_write_1h": usage.cache_write_1h_tokens,
    }


def usage_from(data: object) -> Usage:
    """The usage that such JSON tells; what is missing is zero."""
    given = data if isinstance(data, dict) else {}
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
    counts = [given.get(name) for name in names]
    return Usage(*[count if isinstance(count, int) else 0 for count in counts])


def _mark(data: JsonObject) -> Mark | None:
    pid, began = data.get("pid"), data.get("began")
    if not isinstance(pid, int) or not isinstance(began, str):
        return None
    return Mark(pid, began, _text(data.get("family")) or "")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
