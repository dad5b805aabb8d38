"""The tool `shell`: run a command, limited in place and time, and leave nothing of it behind.

Rules: (1) it starts inside the working folder, without our secrets and our terminal, and with the
guard's variables where there is one; (2) it ends within its time, with everything that it started;
(3) an exit code other than 0 is a failure, with the output; (4) it is no sandbox: what a command
may do once it runs is up to the system, or to a policy before it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

from pydantic import Field, model_validator

from jackline.batches.arguments import Arguments, inside
from jackline.batches.commands import LONGEST_LINE, MOST_WORDS
from jackline.batches.known_commands import changes_nothing, program, usually_prints
from jackline.batches.processes import ProcessCommand, exit_text, run_process, without_secrets
from jackline.batches.threads import in_own_thread
from jackline.batches.tool import CallLabel, JsonObject, ToolContext, ToolFailedError, ToolOutput
from jackline.programs import find_program

_ON_WINDOWS = os.name == "nt"


class ShellArguments(Arguments):
    """What the shell takes: `command` or `argv`."""

    command: str | None = Field(None, description="A command line for the shell.")
    argv: list[str] | None = Field(
        None, description="Instead of `command`: the program and its words, passed on as they are."
    )
    cwd: str = Field(".", description="Where to run it: a folder inside the working folder.")
    timeout: float | None = Field(None, gt=0, description="Seconds after which it is ended.")

    @model_validator(mode="after")
    def _one_of_both(self) -> ShellArguments:
        if (self.command is None) == (self.argv is None):
            raise ValueError("give either `command` or `argv`")
        words = self.argv if self.argv is not None else [self.command or ""]
        if not words or not words[0].strip() or any("\0" in word for word in words):
            raise ValueError("a command needs a program, and cannot hold a NUL character")
        return self


def _folder(root: Path, named: str) -> Path:
    cwd = inside(root, named)
    if not os.path.isdir(cwd):  # noqa: PTH112 -- Path's own raises for names that are too long
        raise ToolFailedError(f"there is no folder {named!r}", ended_by="no such folder")
    return cwd


class ShellTool:
    """Runs commands; one value serves any number of calls."""

    name = "shell"
    input_schema = ShellArguments.json_schema()

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        keep: Iterable[str] = (),
        seconds: float = 120.0,
        longest: float = 3_600.0,
    ) -> None:
        """`keep` names variables that pass although they sound secret; `seconds` is the usual time
        limit and `longest` the most that a call may ask for.
        """
        self._environ = environ
        self._keep = tuple(keep)
        self._seconds = seconds
        self._longest = longest

    @property
    def description(self) -> str:
        """What it does, for a model."""
        return (
            "Runs a command in the working folder and gives its output (standard output and errors "
            f"together). It is ended after {self._seconds:g} seconds unless `timeout` says "
            "otherwise; so is everything that it leaves in the background. Nobody can answer "
            "questions that it asks."
        )

    def read_only(self, arguments: JsonObject) -> bool:
        """Whether the command is known to change nothing."""
        line = self._line(arguments)
        short = line is not None and len(line) <= LONGEST_LINE
        return short and changes_nothing(line or "", windows=_ON_WINDOWS)

    def words(self, arguments: JsonObject) -> CallLabel:
        """The program's name, and the command."""
        line = self._line(arguments)
        if line is None:
            return CallLabel(self.name, self.name)
        # Of more than this nothing is run for a model, and a label is one short line.
        line = line[:LONGEST_LINE]
        return CallLabel(
            program(line),
            f"{self.name}: {line}",
            usually_prints=usually_prints(line, windows=_ON_WINDOWS),
        )

    def _line(self, arguments: JsonObject) -> str | None:
        """The command as typed, from arguments that nobody has checked yet."""
        command, argv = arguments.get("command"), arguments.get("argv")
        if isinstance(command, str):
            return command
        return shlex.join(map(str, argv[:MOST_WORDS])) if isinstance(argv, list) else None

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """The output; ToolFailedError when the command cannot start, fails or takes too long."""
        args = ShellArguments.checked(arguments)
        cwd = await in_own_thread(lambda: _folder(context.cwd, args.cwd), "jackline-shell")
        seconds = min(args.timeout or self._seconds, self._longest)
        environ = without_secrets(
            os.environ if self._environ is None else self._environ, self._keep
        )
        if context.guard is not None:
            environ = context.guard.environment(environ)
        words: Sequence[str] | None = context.argv or args.argv
        if not words:
            words = (find_program("bash") or "/bin/sh", "-c", args.command or "")
        command = ProcessCommand(
            argv=tuple(words),
            line=None if context.argv else args.command,
            cwd=cwd,
            environ=environ,
            seconds=None if seconds == inf else seconds,
        )
        try:
            finished = await run_process(command, context.on_output)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ToolFailedError(
                f"{command.argv[0]!r} cannot be started: {why}", ended_by="not started"
            ) from error
        output, code = finished.output, finished.exit_code
        if finished.left_behind:
            output += "\n(What it had left running in the background was ended.)"
        if not finished.timed_out and code == 0:
            return ToolOutput(output, exit_code=0)
        ended_by, why = exit_text(code), f"failed: {exit_text(code)}"
        if finished.timed_out:
            ended_by = "timed out"
            why = f"timed out after {seconds:g} s and was ended; ask for more with `timeout`"
        raise ToolFailedError(why, output=output, exit_code=code, ended_by=ended_by)
