"""Say what a tool is: a name, a schema, and something to run.

Laws: (1) a tool raises `ToolFailedError` for a failure it can explain; anything else it raises is
told with its type only as far as it holds no secret; (2) `read_only` is a promise: running it twice
does no harm; (3) a tool that is cancelled ends what it started before it lets go.
Not here: running many at once (batch.py), the ready-made ones (shell.py, files.py, …).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from jackline.foreign_repositories import Guard

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
    """Where a tool runs, and whom it tells its output as it comes."""

    cwd: Path
    call_id: str = ""
    heard: Callable[[str], None] = field(default=lambda _text: None)
    guard: Guard | None = None
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
class CallWords:
    """How a report speaks of one call: `name` in a count of failures, `what` where it is echoed.

    `usually_prints` says that success without a word would be strange for such a call.
    """

    name: str
    what: str
    usually_prints: bool = False


@runtime_checkable
class SpeaksOfCalls(Protocol):
    """A tool with better words for a call than its own name and its arguments as JSON."""

    def words(self, arguments: JsonObject) -> CallWords:
        """The words for this call; must not fail, whatever the arguments are."""
        ...
