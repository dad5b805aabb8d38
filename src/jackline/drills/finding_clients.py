"""Find the real Claude Code on this machine, and say which version it is.

Laws: (1) nothing is downloaded; (2) a client that was named and cannot be run is an error with a
next step, one that is merely absent is not.
Not here: running it (claude_fleet.py), fetching it for tests (tests/real_clients/).
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from jackline.errors import UnreadableError
from jackline.programs import find_program

VERSION_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class ClaudeCode:
    """A real client: its program and its version."""

    program: Path
    version: str


def claude_on_path() -> ClaudeCode | None:
    """The client that a shell would start, or None."""
    found = find_program("claude")
    if found is None:
        return None
    version = _version(Path(found))
    return None if version is None else ClaudeCode(Path(found), version)


def claude_at(program: Path) -> ClaudeCode:
    """The client that was named."""
    program = program.absolute()
    version = _version(program)
    if version is None:
        raise UnreadableError(
            f"{program} is not a Claude Code that can be run here",
            next="give its program with --claude PATH, or take --client builtin",
        )
    return ClaudeCode(program, version)


def _version(program: Path) -> str | None:
    try:
        told = subprocess.run(  # noqa: S603 -- the user's own program, named by the user or the PATH
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_PATIENCE_S,
            check=True,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return None
    return told.split(maxsplit=1)[0] if "Claude Code" in told else None
