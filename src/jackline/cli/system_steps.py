"""Steps that change this user's system (write a file, run a command), shown before they are done.

Rules: (1) a step prints what it does, whole, before it is done; a dry run only prints it; (2) only
this user's own files and services are touched; (3) a step that only undoes may find nothing to
undo.
Not here: which steps (gateway_service.py, wake_timer.py, client_setup.py).
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

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_/.:=@%$+,-]+")


@dataclass(frozen=True, slots=True)
class Write:
    """Write this file, and the folders above it."""

    path: Path
    content: bytes

    def __str__(self) -> str:
        encoding = "utf-16" if self.content.startswith(b"\xff\xfe") else "utf-8"
        text = self.content.decode(encoding).replace("\r\n", "\n").rstrip("\n")
        return f"write {self.path}\n" + "\n".join(f"    {line}" for line in text.splitlines())


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove this file, if it is there."""

    path: Path

    def __str__(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True, slots=True)
class Run:
    """Run this command; `may_fail` when it only undoes what may not be there."""

    words: tuple[str, ...]
    may_fail: bool = False
    told: str = ""
    """What the command reads from its standard input."""
    folder: str = ""
    """Where it is run; empty: where we are."""

    def __str__(self) -> str:
        read = f" <<< {shlex.quote(self.told)}" if self.told else ""
        return f"run {shlex.join(self.words)}{read}"


Step: TypeAlias = Write | Remove | Run


def apply_steps(
    steps: Sequence[Step], tell: Callable[[str], None], *, dry_run: bool = False
) -> None:
    """Tell each step, then do it; a dry run only tells."""
    for step in steps:
        tell(str(step))
        if dry_run:
            continue
        try:
            _do(step)
        except OSError as error:
            raise UsageError(f"this step failed: {step}: {error.strerror}") from error


def unit_word(word: str) -> str:
    """One word of ExecStart: systemd unquotes it, and replaces % and $ unless doubled."""
    doubled = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if _PLAIN_WORD.fullmatch(doubled):
        return doubled
    return '"' + doubled.replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


def _do(step: Step) -> None:
    if isinstance(step, Write):
        step.path.parent.mkdir(parents=True, exist_ok=True)
        step.path.write_bytes(step.content)
    elif isinstance(step, Remove):
        step.path.unlink(missing_ok=True)
    else:
        done = subprocess.run(  # noqa: S603 -- shown before
            [find_program(step.words[0]) or step.words[0], *step.words[1:]],
            input=step.told.encode(),
            cwd=step.folder or None,
            capture_output=True,
            check=False,
        )
        if done.returncode and not step.may_fail:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            raise UsageError(
                f"{step.words[0]} ended with exit code {done.returncode}: {said or 'no word'}",
                next=f"see why with: {shlex.join(step.words)}",
            )
