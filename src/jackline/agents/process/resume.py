"""Find in an agent's log where its earlier processes stopped, and write the prompt to resume it.

Rules: (1) reading the log is pure, and entries of older versions that make no sense are skipped;
(2) an answer in several pieces is counted once, and the total that a process reported counts more
than the sum of its pieces; (3) the prompt is never a bare "continue": it names the interruption,
the calls that may or may not have run, and the changed files; (4) the task is repeated only where
the conversation does not contain it; (5) looking at the disk changes nothing, its failure is not
the agent's failure, and where git must not run, the prompt says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jackline.agents.process.child import ProcessMark
from jackline.agents.runner import JsonObject, LogEntry
from jackline.dialects import TokenUsage
from jackline.foreign_repositories import ForeignRepositoryError, ask_git
from jackline.transcripts.saved_conversation import TranscriptToolCall

_SHOWN_RESULT = 2_000
_SHOWN_FILES = 40
_GIT_PATIENCE_S = 10.0


def resume_prompt(
    what_happened: str,
    lost: Sequence[TranscriptToolCall],
    on_disk: str = "",
    *,
    finished: Sequence[tuple[TranscriptToolCall, str]] = (),
    task: str | None = None,
) -> str:
    """The prompt with which an agent continues.

    `on_disk` is what `changes_on_disk` says; `finished` are calls that ended and whose results the
    conversation does not hold; `task` is repeated where it does not hold that either.
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
            "Everything else is in this conversation and is finished: do not do it again. Go "
            "on with the task from there, to its end."
        )
    else:
        parts.append(f"The task, which this conversation does not hold yet:\n\n{task}")
    return "\n\n".join(part for part in parts if part)


async def changes_on_disk(cwd: Path) -> str:
    """What has changed under this folder, as git says; empty where it says nothing."""
    try:
        async with asyncio.timeout(_GIT_PATIENCE_S):
            code, output = await ask_git(
                cwd, "status", "--short", "--ignore-submodules=all", "--", "."
            )
    except TimeoutError:
        return ""
    except ForeignRepositoryError as error:
        return (
            "What has changed on disk is not listed here, because git is not run there:"
            f" {error.why}. Look for yourself."
        )
    if code or not output:
        return ""
    files = output.decode("utf-8", "replace").splitlines()
    shown = "\n".join(files[:_SHOWN_FILES])
    more = len(files) - _SHOWN_FILES
    rest = f"\n(and {more} more)" if more > 0 else ""
    return f"Changed on disk, as `git status --short` prints it now:\n{shown}{rest}"


STARTED = "process"
BEGAN = "began"
ANSWER = "answer"
RESULT = "result"
ENDED = "ended"
DONE = "done"


@dataclass(slots=True)
class History:
    """An agent's earlier processes, from its log."""

    session_id: str | None = None
    model: str | None = None
    mark: ProcessMark | None = None
    """The process that was started last, if no entry reports its end."""
    answers: dict[str, TokenUsage] = field(default_factory=dict)
    turns: int = 0
    priced: TokenUsage = field(default_factory=TokenUsage)
    """Of the processes that reported their cost."""
    ended_unpriced: TokenUsage = field(default_factory=TokenUsage)
    """Of those that reported none, or were killed before."""
    counted: TokenUsage | None = None
    """The program's own count when the last process was started."""
    cost: float | None = None
    last_end: str = ""
    text: str = ""
    calls: dict[str, TranscriptToolCall] = field(default_factory=dict)
    """The calls of the agent itself, in their order."""
    results: dict[str, str] = field(default_factory=dict)
    """Their results, by call id."""
    done: JsonObject | None = None

    @classmethod
    def from_log(cls, entries: Iterable[LogEntry]) -> History:
        """The history in an agent's log."""
        history = cls()
        for entry in entries:
            history.add(entry.kind, entry.data)
        return history

    @property
    def usage(self) -> TokenUsage:
        """All tokens that are known of."""
        return self.priced + self.unpriced

    @property
    def unpriced(self) -> TokenUsage:
        """The tokens whose cost nobody reported."""
        return sum(self.answers.values(), self.ended_unpriced)

    def add(self, kind: str, data: JsonObject) -> None:
        """Add one entry."""
        if kind == STARTED:
            self._add_start(data)
        elif kind == BEGAN:
            session = _text(data, "session")
            if session and not session.startswith("-"):  # a program would take it for an option
                self.session_id = session
            self.model = _text(data, "model") or self.model
        elif kind == ANSWER:
            self._add_answer(data)
        elif kind == RESULT:
            self.results[_text(data, "id")] = _text(data, "text")
        elif kind == ENDED:
            self._add_end(data)
        elif kind == DONE:
            self.done = data

    def _add_start(self, data: JsonObject) -> None:
        counted = data.get("counted")
        now = TokenUsage.from_json(counted) if isinstance(counted, dict) else None
        # A process without an end has cost at least what was seen of it.
        seen = sum(self.answers.values(), TokenUsage())
        if self.mark is not None and now is not None and self.counted is not None:
            seen = now - self.counted
        self.ended_unpriced += seen
        self.answers.clear()
        self.counted = now
        pid, began = data.get("pid"), data.get("began")
        self.mark = None
        if isinstance(pid, int) and isinstance(began, str):
            self.mark = ProcessMark(pid, began, _text(data, "family"))

    def _add_answer(self, data: JsonObject) -> None:
        name = _text(data, "id") or f"without id, {len(self.answers)}"
        if data.get("agent") is None:
            self.turns += name not in self.answers
            self.text = _text(data, "text") or self.text
            calls = data.get("calls")
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, dict) and (call_id := _text(call, "id")):
                    self.calls[call_id] = TranscriptToolCall(
                        call_id, _text(call, "name"), _text(call, "input")
                    )
        self.answers[name] = TokenUsage.from_json(data.get("usage"))

    def _add_end(self, data: JsonObject) -> None:
        self.mark = None
        self.last_end = _text(data, "says")
        usage, cost, turns = data.get("usage"), data.get("cost"), data.get("turns")
        if isinstance(usage, dict):
            # Of the whole process, which includes what was seen of it piece by piece.
            self.answers.clear()
        if isinstance(cost, int | float):
            self.cost = (self.cost or 0.0) + cost
            self.priced += TokenUsage.from_json(usage)
        else:
            self.ended_unpriced += TokenUsage.from_json(usage)
        if isinstance(turns, int):
            self.turns = turns


def _text(data: JsonObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
