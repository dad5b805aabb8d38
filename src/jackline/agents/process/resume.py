"""Find in an agent's log where its earlier processes stopped, and write the prompt to resume it.

Rules: (1) reading the log is pure, and entries of older versions that make no sense are skipped;
(2) an answer in several pieces is counted once, and the total that a process reported counts more
than the sum of its pieces; (3) the prompt is never a bare "continue": it names the interruption,
the calls that may or may not have run, and the changed files; (4) the task is repeated only where
the conversation does not contain it; (5) looking at the disk changes nothing, its failure is not
the agent's failure, and where git must not run, the prompt says so.
Not here: finding lost calls (claude_code/transcript.py, codex/records.py), writing the log
(runner.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jackline.agents.outcome import TokenUsage
from jackline.agents.process.child import ProcessMark
from jackline.agents.runner import JsonObject, LogEntry
from jackline.foreign_repositories import ForeignRepositoryError, ask_git

_SHOWN_INPUT = 600
_SHOWN_RESULT = 2_000
_SHOWN_FILES = 40
_GIT_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class ProgramToolCall:
    """A call of a tool, as the model made it."""

    id: str
    name: str
    input: JsonObject | str

    @property
    def given(self) -> str:
        """Its input, shortened."""
        whole = self.input if isinstance(self.input, str) else _json(self.input)
        return whole if len(whole) <= _SHOWN_INPUT else f"{whole[:_SHOWN_INPUT]}…"

    def __str__(self) -> str:
        # By its id it is known again, should the agent be cut off once more.
        return f"{self.name} {self.given} ({self.id})"


def _json(value: JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False)


def resume_prompt(
    what_happened: str,
    lost: Sequence[ProgramToolCall],
    on_disk: str = "",
    *,
    finished: Sequence[tuple[ProgramToolCall, str]] = (),
    task: str | None = None,
) -> str:
    """The prompt with which an agent goes on.

    `on_disk` is what `changes_on_disk` says; `finished` are calls that ended and whose results the
    conversation does not hold; `task` is told where it does not hold that either.
    """
    parts = [what_happened.strip()]
    if finished:
        calls = "\n".join(f"- {call}: {result[:_SHOWN_RESULT]}" for call, result in finished)
        parts.append(
            "These tool calls had finished before that, though the conversation has lost them. Do "
            f"not run them again; what each gave:\n{calls}"
        )
    if lost:
        calls = "\n".join(f"- {call}" for call in lost)
        parts.append(
            "When that happened these tool calls were under way. Their results are lost: each may "
            "or may not have run, in part or as a whole, and may still be running. Look at what "
            f"they left before you run one again:\n{calls}"
        )
    parts.append(on_disk)
    if task is None:
        parts.append(
            "Everything else stands in this conversation and is finished: do not do it again. Go "
            "on with the task from there, to its end."
        )
    else:
        parts.append(f"The task, which this conversation does not hold yet:\n\n{task}")
    return "\n\n".join(part for part in parts if part)


async def changes_on_disk(cwd: Path) -> str:
    """What has changed under this folder, as git says; empty where it says nothing."""
    try:
        async with asyncio.timeout(_GIT_PATIENCE_S):
            code, said = await ask_git(
                cwd, "status", "--short", "--ignore-submodules=all", "--", "."
            )
    except TimeoutError:
        return ""
    except ForeignRepositoryError as error:
        return (
            "What has changed on disk is not listed here, because git is not run there:"
            f" {error.why}. Look for yourself."
        )
    if code or not said:
        return ""
    files = said.decode("utf-8", "replace").splitlines()
    shown = "\n".join(files[:_SHOWN_FILES])
    more = len(files) - _SHOWN_FILES
    rest = f"\n(and {more} more)" if more > 0 else ""
    return f"Changed on disk, as `git status --short` tells it now:\n{shown}{rest}"


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
    mark: ProcessMark | None = None
    """The process that was started last, if nothing tells of its end."""
    answers: dict[str, TokenUsage] = field(default_factory=dict)
    turns: int = 0
    settled: TokenUsage = field(default_factory=TokenUsage)
    """Of the processes that told what they cost."""
    untold: TokenUsage = field(default_factory=TokenUsage)
    """Of those that told no cost, or did not get to tell."""
    counted: TokenUsage | None = None
    """What the program's own count stood at when the last process was started."""
    cost: float | None = None
    last_end: str = ""
    text: str = ""
    calls: dict[str, ProgramToolCall] = field(default_factory=dict)
    """What the agent itself has called, in its order."""
    results: dict[str, str] = field(default_factory=dict)
    """What came of it, by call id."""
    done: JsonObject | None = None

    @property
    def begun(self) -> bool:
        """Whether a session was begun."""
        return self.session_id is not None

    @property
    def usage(self) -> TokenUsage:
        """All tokens that are known of."""
        return self.settled + self.unpriced

    @property
    def unpriced(self) -> TokenUsage:
        """The tokens of which nobody told what they cost."""
        return self.untold + self._seen()

    def _seen(self) -> TokenUsage:
        return sum(self.answers.values(), TokenUsage())

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
                self.calls[name] = ProgramToolCall(name, _text(call.get("name")) or "", given)

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


def history_of(entries: Iterable[LogEntry]) -> History:
    """What these lines tell."""
    history = History()
    for entry in entries:
        history.take(entry.kind, entry.data)
    return history


def beyond(total: TokenUsage, told: TokenUsage) -> TokenUsage:
    """What of the total was not told yet."""
    return TokenUsage(
        max(0, total.input_tokens - told.input_tokens),
        max(0, total.output_tokens - told.output_tokens),
        max(0, total.cache_read_tokens - told.cache_read_tokens),
        max(0, total.cache_write_tokens - told.cache_write_tokens),
        max(0, total.cache_write_1h_tokens - told.cache_write_1h_tokens),
    )


def usage_to(usage: TokenUsage) -> JsonObject:
    """A usage as JSON."""
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
        "cache_write_1h": usage.cache_write_1h_tokens,
    }


def usage_from(data: object) -> TokenUsage:
    """The usage that such JSON tells; what is missing is zero."""
    given = data if isinstance(data, dict) else {}
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
    counts = [given.get(name) for name in names]
    return TokenUsage(*[count if isinstance(count, int) else 0 for count in counts])


def _mark(data: JsonObject) -> ProcessMark | None:
    pid, began = data.get("pid"), data.get("began")
    if not isinstance(pid, int) or not isinstance(began, str):
        return None
    return ProcessMark(pid, began, _text(data.get("family")) or "")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
