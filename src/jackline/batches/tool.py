"""Define a tool, its calls and their results, with the text that a model reads of each.

Rules: (1) a tool raises `ToolFailedError` for a failure that it can explain; of anything else only
the type and redacted words are shown; (2) `read_only` is a promise: running it twice does no harm;
(3) a cancelled tool ends what it started; (4) results are in the order of the calls, a call that
did not run says why, and every text for a model begins with the call that it answers; (5) the label
of a call is one bounded line and never fails; (6) of a long output the beginning and the end are
stored, with the number of characters left out between them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from jackline.foreign_repositories import GitGuard

OUTPUT_CHARACTERS = 30_000
"""Characters; about ten pages, which a model reads without losing the thread."""


class ClippedOutput:
    """The first half and the last half of what fits into `limit` characters."""

    def __init__(self, limit: int = OUTPUT_CHARACTERS) -> None:
        self._head_room = limit // 2
        self._tail_room = limit - limit // 2
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._in_tail = 0
        self.left_out = 0

    def add(self, text: str) -> None:
        """Take what came next."""
        if self._head_room:
            first, text = text[: self._head_room], text[self._head_room :]
            self._head.append(first)
            self._head_room -= len(first)
        if text:
            # A single huge piece would otherwise be held whole, only to be cut when asked for.
            self._tail.append(text[-self._tail_room :])
            self.left_out += len(text) - len(self._tail[-1])
            self._in_tail += len(self._tail[-1])
            while self._in_tail - len(self._tail[0]) >= self._tail_room:
                gone = len(self._tail.popleft())
                self._in_tail -= gone
                self.left_out += gone
            if self._in_tail > self._tail_room:
                over = self._in_tail - self._tail_room
                self._tail[0] = self._tail[0][over:]
                self._in_tail -= over
                self.left_out += over

    @property
    def text(self) -> str:
        """What is kept, with a note where something is missing."""
        head, tail = "".join(self._head), "".join(self._tail)
        if not self.left_out:
            return head + tail
        return f"{head}\n… ({self.left_out:,} characters left out) …\n{tail}"


JsonObject: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gave: text, or content blocks in Anthropic's words (images, say)."""

    text: str = ""
    blocks: tuple[JsonObject, ...] = ()
    exit_code: int | None = None
    value: object = None
    """What a Python function returned, for Python callers; no record keeps it."""


class ToolFailedError(Exception):
    """The tool did not do it; `output` is what it had printed, `exit_code` what it ended with.

    `ended_by` is a word or two for a count of failures ("timed out"), where the code says nothing.
    """

    def __init__(
        self, says: str, *, output: str = "", exit_code: int | None = None, ended_by: str = ""
    ) -> None:
        super().__init__(says)
        self.ended_by = ended_by
        self.says = says
        self.output = output
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a tool runs, and who gets its output as it comes."""

    cwd: Path
    call_id: str = ""
    on_output: Callable[[str], None] = field(default=lambda _text: None)
    guard: GitGuard | None = None
    """With which variables a command runs that starts git in a repository that is not trusted."""
    argv: tuple[str, ...] = ()
    """The words of a command that were permitted: they run, whatever its arguments say."""


class Tool(Protocol):
    """Something that a model, or a program, may call."""

    @property
    def name(self) -> str:
        """How the model calls it."""
        ...

    @property
    def description(self) -> str:
        """What it does, for a model."""
        ...

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of its input."""
        ...

    def read_only(self, arguments: JsonObject) -> bool:
        """Whether this call changes nothing, so that it may run twice."""
        ...

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What came of it; ToolFailedError when it failed."""
        ...


@dataclass(frozen=True, slots=True)
class CallLabel:
    """How a report speaks of one call: `name` in a count of failures, `what` where it is echoed.

    `usually_prints` says that success without a word would be strange for such a call.
    """

    name: str
    what: str
    usually_prints: bool = False


@runtime_checkable
class LabelsCalls(Protocol):
    """A tool with better words for a call than its own name and its arguments as JSON."""

    def words(self, arguments: JsonObject) -> CallLabel:
        """The words for this call; must not fail, whatever the arguments are."""
        ...


_MOST_NAMED = 5
"""Failures named in a summary; the results themselves say all."""
_LONGEST_LABEL = 100


@dataclass(frozen=True, slots=True)
class BatchCall:
    """One call of a batch.

    `needs` are ids of calls that must have succeeded first; `timeout` is in seconds; `what` is the
    caller's own word for it, where the tool's would not do.
    """

    id: str
    tool: Tool
    arguments: JsonObject
    needs: tuple[str, ...] = ()
    timeout: float | None = None
    what: str = ""

    @property
    def label(self) -> CallLabel:
        """How a report speaks of it: one bounded line."""
        arguments = self.arguments
        if isinstance(self.tool, LabelsCalls):
            label = self.tool.words(arguments)
        else:
            shown = json.dumps(arguments, ensure_ascii=False, default=repr) if arguments else ""
            if len(arguments) == 1 and isinstance(only := next(iter(arguments.values())), str):
                shown = only
            label = CallLabel(self.tool.name, f"{self.tool.name}: {shown}".rstrip(": "))
        line = " ".join((self.what or label.what).split())
        if len(line) > _LONGEST_LABEL:
            line = f"{line[: _LONGEST_LABEL - 1]}…"
        return replace(label, what=line)

    @property
    def may_run_twice(self) -> bool:
        """Whether its tool promises that it changes nothing."""
        try:
            return self.tool.read_only(self.arguments)
        except Exception:  # noqa: BLE001 -- a tool that cannot say it has promised nothing
            return False


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of one call; `text` holds what it printed, also when it failed half-way."""

    id: str
    what: str
    ok: bool
    text: str = ""
    blocks: tuple[JsonObject, ...] = ()
    error: str | None = None
    """Why it is not ok, in a sentence; None when it is."""
    exit_code: int | None = None
    skipped_because: str | None = None
    """Set when the call never ran; `error` holds the same words."""
    empty_noticed: str = ""
    ran_again: bool = False
    seconds: float = 0.0
    name: str = ""
    """What a count of failures calls it: `grep`, where `what` is the whole command."""
    value: object = None
    """What a Python function returned; None for other tools."""
    ended_by: str = ""
    """For a count of failures: `exit 3`, `timed out`, `crashed`, `cancelled`, `refused`; or ""."""

    @property
    def for_model(self) -> str:
        """The result as a model should read it: what it answers, how it went, what it printed."""
        notes = [self.error or "ok"]
        if self.ok and self.empty_noticed:
            notes.append(self.empty_noticed)
        elif self.ok and not self.text.strip() and not self.blocks:
            notes.append("it printed nothing")
        headline = f"[{self.what}] {'; '.join(notes)}"
        return "\n".join(part for part in (headline, self.text.rstrip("\n")) if part)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The results of a batch, in the order of its calls."""

    results: tuple[CallResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every call did what it was asked to."""
        return all(result.ok for result in self.results)

    @property
    def failed(self) -> tuple[CallResult, ...]:
        """The calls that ran and failed, or were refused; not those that were skipped for them."""
        return tuple(r for r in self.results if not r.ok and r.skipped_because is None)

    @property
    def skipped(self) -> tuple[CallResult, ...]:
        """The calls that never ran because something they need did not succeed."""
        return tuple(result for result in self.results if result.skipped_because is not None)

    @property
    def summary(self) -> str:
        """All counts: "13 of 14 ok, 1 failed: grep (exit 3)"."""
        good = sum(result.ok for result in self.results)
        return ", ".join((f"{good} of {len(self.results)} ok", *self._troubles()))

    @property
    def headline(self) -> str:
        """The trouble alone: "1 of 14 failed: grep (exit 3)"; "all 14 ok" without any."""
        if self.ok:
            return f"all {len(self.results)} ok"
        first, *rest = self._troubles()
        count, verb, names = first.partition(" ")
        return ", ".join((f"{count} of {len(self.results)}{verb}{names}", *rest))

    def _troubles(self) -> list[str]:
        troubles = []
        for what, results in (("failed", self.failed), ("skipped", self.skipped)):
            if not results:
                continue
            names = ", ".join(
                (result.name or result.id) + (f" ({result.ended_by})" if result.ended_by else "")
                for result in results[:_MOST_NAMED]
            )
            more = len(results) - _MOST_NAMED
            names += f" and {more} more" if more > 0 else ""
            troubles.append(f"{len(results)} {what}: {names}")
        return troubles

    def __getitem__(self, call_id: str) -> CallResult:
        for result in self.results:
            if result.id == call_id:
                return result
        raise KeyError(call_id)

    def __iter__(self) -> Iterator[CallResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)


class MissingTool:
    """Answers a call to a tool that nobody offered."""

    description = "Does not exist."

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.input_schema: JsonObject = {"type": "object"}
        self._known = tuple(known)

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """It does nothing at all."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """Never: there is nothing to run."""
        known = ", ".join(self._known) or "none"
        raise ToolFailedError(
            f"there is no tool {self.name!r}; the tools are: {known}", ended_by="no such tool"
        )
