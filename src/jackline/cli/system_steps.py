"""Steps that change this user's system (write a file, run a command), printed before they are done.

Rules: (1) a step is printed in full before it is done; a dry run only prints it; (2) only this
user's own files and services are touched; (3) a step that only undoes may find nothing to undo.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jackline.errors import UsageError
from jackline.programs import find_program

_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_/.:=@%$+,-]+")


@dataclass(frozen=True, slots=True)
class Write:
    """Write this file, and create the folders above it."""

    path: Path
    content: bytes

    def __str__(self) -> str:
        encoding = "utf-16" if self.content.startswith(b"\xff\xfe") else "utf-8"
        text = self.content.decode(encoding).replace("\r\n", "\n").rstrip("\n")
        return f"write {self.path}\n" + "\n".join(f"    {line}" for line in text.splitlines())

    def apply(self) -> None:
        """Do it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.content)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove this file, if it is there."""

    path: Path

    def __str__(self) -> str:
        return f"remove {self.path}"

    def apply(self) -> None:
        """Do it."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Run:
    """Run this command in `folder` (empty: the current one)."""

    command: tuple[str, ...]
    may_fail: bool = False
    stdin: str = ""
    folder: str = ""

    def __str__(self) -> str:
        stdin = f" <<< {shlex.quote(self.stdin)}" if self.stdin else ""
        return f"run {shlex.join(self.command)}{stdin}"

    def apply(self) -> None:
        """Do it."""
        done = subprocess.run(  # noqa: S603 -- shown before
            [find_program(self.command[0]) or self.command[0], *self.command[1:]],
            input=self.stdin.encode(),
            cwd=self.folder or None,
            capture_output=True,
            check=False,
        )
        if done.returncode and not self.may_fail:
            output = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            raise UsageError(
                f"{self.command[0]} ended with exit code {done.returncode}:"
                f" {output or 'no output'}",
                hint=f"see why with: {shlex.join(self.command)}",
            )


Step: TypeAlias = Write | Remove | Run


@dataclass(frozen=True, slots=True)
class Installation:
    """The steps that install one thing, and the steps that undo it."""

    install: tuple[Step, ...]
    uninstall: tuple[Step, ...]


def apply_steps(
    steps: Sequence[Step], show: Callable[[str], None], *, dry_run: bool = False
) -> None:
    """Show each step, then do it; a dry run only shows it."""
    for step in steps:
        show(str(step))
        if dry_run:
            continue
        try:
            step.apply()
        except OSError as error:
            raise UsageError(f"this step failed: {step}: {error.strerror}") from error


def unit_word(word: str) -> str:
    """One argument of ExecStart: systemd unquotes it, and replaces % and $ unless doubled."""
    doubled = word.replace("%", "%%").replace("$", "$$")
    if _NEEDS_NO_QUOTES.fullmatch(doubled):
        return doubled
    return unit_quoted(doubled)


def unit_quoted(text: str) -> str:
    """The text in quotes, as systemd reads them; a line end in it does not end the line."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = (f"\\x{ord(each):02x}" if each < " " or each == "\x7f" else each for each in quoted)
    return f'"{"".join(escaped)}"'
