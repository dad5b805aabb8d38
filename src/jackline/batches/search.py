"""The tool that searches files of the working folder for a regular expression.

Laws: (1) no external program is needed; (2) a pattern that never ends is ended like any command,
since it is compiled and runs in a process of its own; what it found so far is kept; (3) nothing
found is an answer, told as one; (4) one batch runs few of these processes at once, and all batches
together not many: a model may always search, and others must come to their turn.
Not here: the search itself (search_worker.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from pydantic import Field

from jackline.batches import search_worker
from jackline.batches.arguments import Arguments, checked, schema_of
from jackline.batches.environment import without_secrets
from jackline.batches.paths import inside, shown
from jackline.batches.processes import Command, Finished, run_process
from jackline.batches.tool import JsonObject, ToolContext, ToolFailedError, ToolOutput

AT_ONCE = 4
"""So many processes one batch has at most."""
AT_ONCE_IN_ALL = 16
_MOST = 200
_LONGEST = 2_000
_LARGEST = 5_000_000
_SECONDS = 60.0
_COMPILE_SECONDS = 5.0
_LAST = "\x1e"

_in_all: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
"""Places for all batches of a loop."""


class SearchArguments(Arguments):
    """What `search` takes."""

    pattern: str = Field(
        min_length=1,
        max_length=_LONGEST,
        description="A regular expression, matched line by line.",
    )
    path: str = Field(".", description="A file or folder inside the working folder.")
    files: str = Field(
        "", max_length=_LONGEST, description="Only files whose names fit, such as '*.py'."
    )
    any_case: bool = Field(False, description="Whether capital and small letters are the same.")
    most: int = Field(_MOST, ge=1, le=2_000, description="How many lines to give at most.")


class SearchTool:
    """Gives matching lines as `path:line:text`; one is made for each batch."""

    name = "search"
    description = (
        "Searches files of the working folder for a regular expression (Python's) and gives the "
        "matching lines as path:line:text. Version control, caches and binary files are left out."
    )
    input_schema = schema_of(SearchArguments)

    def __init__(
        self, *, seconds: float = _SECONDS, compile_seconds: float = _COMPILE_SECONDS
    ) -> None:
        self._seconds = seconds
        self._compile_seconds = compile_seconds
        self._places = asyncio.Semaphore(AT_ONCE)

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Searching changes nothing."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """The matching lines."""
        asked = checked(SearchArguments, arguments)
        root = inside(context.cwd, asked.path)
        if not root.exists():
            raise ToolFailedError(f"there is no {asked.path!r}", ended_by="no such path")
        # Not told as it comes: the last line is for us alone, and hits are short.
        command = replace(self._command(asked, context.cwd, root), seconds=self._seconds)
        # First its own: the batches' queue for the others is then short, and each has its turn.
        async with self._places, _places_in_all():
            return _answer(await run_process(command, _nobody), asked)

    def _command(self, asked: SearchArguments, cwd: Path, root: Path) -> Command:
        question = {
            "pattern": asked.pattern,
            "compile_seconds": self._compile_seconds,
            "path": shown(cwd, root),
            "files": asked.files,
            "any_case": asked.any_case,
            "most": asked.most,
            "largest": _LARGEST,
        }
        return Command(
            argv=(sys.executable, "-I", "-S", "-W", "ignore", str(search_worker.__file__)),
            cwd=cwd.resolve(),
            environ=without_secrets(os.environ),
            limit=1_000_000,
            stdin=json.dumps(question).encode(),
        )


def _places_in_all() -> asyncio.Semaphore:
    return _in_all.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE_IN_ALL))


def _nobody(_text: str) -> None:
    """Hear nothing."""


@dataclass(frozen=True, slots=True)
class _Told:
    found: int
    files: int
    full: bool
    too_large: list[str]


def _answer(finished: Finished, asked: SearchArguments) -> ToolOutput:
    hits, _, last = finished.output.rpartition(_LAST)
    if finished.timed_out:
        raise ToolFailedError(
            "timed out; use a simpler pattern or fewer files",
            output=finished.output,
            ended_by="timed out",
        )
    if finished.exit_code != 0 or not last:
        raise ToolFailedError(
            "the search ended before its time", output=hits, exit_code=finished.exit_code
        )
    said = json.loads(last)
    if "bad_pattern" in said:
        raise ToolFailedError(
            f"the pattern is no regular expression: {said['bad_pattern']}", ended_by="bad pattern"
        )
    told = _Told(**said)
    notes = []
    if not told.found:
        notes.append(f"no line of {told.files:,} files matches")
    if told.full:
        notes.append(
            f"only the first {asked.most:,}; narrow the pattern or name `files` for others"
        )
    if told.too_large:
        notes.append(f"left out, being too large: {', '.join(told.too_large)}")
    return ToolOutput(hits + (f"({'; '.join(notes)})\n" if notes else ""))
