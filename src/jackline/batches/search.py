"""The tool that searches files of the working folder for a regular expression.

Laws: (1) no external program is needed; (2) a pattern that never ends is ended like any command,
since it runs in a process of its own; what it found so far is kept; (3) nothing found is an answer,
told as one.
Not here: the search itself (search_worker.py).
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from jackline.batches import search_worker
from jackline.batches.arguments import Arguments, checked, schema_of
from jackline.batches.environment import without_secrets
from jackline.batches.paths import inside, shown
from jackline.batches.processes import Command, Finished, run_process
from jackline.batches.tool import JsonObject, ToolContext, ToolFailedError, ToolOutput

_MOST = 200
_LARGEST = 5_000_000
_SECONDS = 60.0
_LAST = "\x1e"


class SearchArguments(Arguments):
    """What `search` takes."""

    pattern: str = Field(min_length=1, description="A regular expression, matched line by line.")
    path: str = Field(".", description="A file or folder inside the working folder.")
    files: str = Field("", description="Only files whose names fit, such as '*.py'.")
    any_case: bool = Field(False, description="Whether capital and small letters are the same.")
    most: int = Field(_MOST, ge=1, le=2_000, description="How many lines to give at most.")


class SearchTool:
    """Gives matching lines as `path:line:text`."""

    name = "search"
    description = (
        "Searches files of the working folder for a regular expression (Python's) and gives the "
        "matching lines as path:line:text. Version control, caches and binary files are left out."
    )
    input_schema = schema_of(SearchArguments)

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        self._seconds = seconds

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Searching changes nothing."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """The matching lines."""
        asked = checked(SearchArguments, arguments)
        try:
            re.compile(asked.pattern)
        except re.error as error:
            raise ToolFailedError(
                f"the pattern is no regular expression: {error.msg}", ended_by="bad pattern"
            ) from error
        root = inside(context.cwd, asked.path)
        if not root.exists():
            raise ToolFailedError(f"there is no {asked.path!r}", ended_by="no such path")
        # Not told as it comes: the last line is for us alone, and hits are short.
        command = replace(_command(asked, context.cwd, root), seconds=self._seconds)
        return _answer(await run_process(command, _nobody), asked)


def _nobody(_text: str) -> None:
    """Hear nothing."""


def _command(asked: SearchArguments, cwd: Path, root: Path) -> Command:
    question = {
        "pattern": asked.pattern,
        "path": shown(cwd, root),
        "files": asked.files,
        "any_case": asked.any_case,
        "most": asked.most,
        "largest": _LARGEST,
    }
    return Command(
        argv=(sys.executable, "-I", "-S", str(search_worker.__file__)),
        cwd=cwd.resolve(),
        environ=without_secrets(os.environ),
        limit=1_000_000,
        stdin=json.dumps(question).encode(),
    )


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
    told = _Told(**json.loads(last))
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
