"""Ask git about a folder without running what its repository names: no other module starts git.

Rules: (1) a repository's own settings can name programs that git starts when it merely looks: what
can be switched off is switched off for every question; (2) filters cannot be (they have any name),
so a repository that sets one is not looked at, and `ForeignProgramError` names the setting; (3)
what the user has set for all repositories is the user's own and runs; (4) submodules are not looked
into, since each has settings of its own, and nothing is fetched; (5) variables that point git
elsewhere are left out: the folder that is asked about is the one that answers (docs/decisions/058).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from jackline.programs import find_program

# For every question: what a repository could otherwise have git start. Later `-c` win over files.
_SWITCHED_OFF = (
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    # A clone can bring a bare repository, with any settings, in a subfolder.
    *("-c", "safe.bareRepository=explicit"),
    "--no-pager",
    "--no-optional-locks",
)
# Missing objects would be fetched, by programs that the repository names (a promisor remote).
_NO_NETWORK = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
_ELSEWHERE = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
) | {"GIT_NAMESPACE", "GIT_PREFIX", "GIT_CEILING_DIRECTORIES"}
_FILTERS = r"^filter\..*\.(clean|smudge|process)$"
# What a plain git, started with words of somebody else's, would start beside that.
_PROGRAMS = (
    rf"{_FILTERS}"
    r"|^diff\.(external|.*\.(command|textconv))$"
    r"|^gpg\.(.*\.)?program$"
    r"|^core\.(fsmonitor|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand)$"
    r"|^(pager\..*|sequence\.editor|interactive\.difffilter|credential\.(.*\.)?helper)$"
    r"|^remote\..*\.(uploadpack|receivepack|vcs)$"
    r"|^(merge\..*\.driver|mergetool\..*|difftool\..*|alias\..*)$"
)
# These name a program, or are switched: git has a monitor and a pager of its own.
_SWITCHED = (b"core.fsmonitor", b"pager.")
_SWITCHES = frozenset((b"true", b"false", b"yes", b"no", b"on", b"off", b"1", b"0", b""))
_OF_THE_REPOSITORY = frozenset((b"local", b"worktree"))
_NO_MATCH = 1
_NO_GIT = (1, b"there is no git on the PATH")


class ForeignProgramError(Exception):
    """A repository sets a program of its own, which git would start; `setting` names it."""

    def __init__(self, setting: str) -> None:
        super().__init__(f"the repository sets {setting}, a program that git would start")
        self.setting = setting


async def ask_git(cwd: Path, *words: str) -> tuple[int, bytes]:
    """The exit code of git, and what it printed or why it failed; ForeignProgramError as above."""
    git = find_program("git")
    if git is None:
        return _NO_GIT
    code, setting = await _program_set(git, cwd, _FILTERS)
    if setting is not None:
        raise ForeignProgramError(setting.decode("utf-8", "replace"))
    if code not in (0, _NO_MATCH):
        return code, b"the settings of the repository cannot be read"
    return await _run(git, cwd, words)


async def program_set_by(cwd: Path) -> str | None:
    """The first setting of the repository there that names a program; None if it has none."""
    git = find_program("git")
    if git is None:
        return None
    _, setting = await _program_set(git, cwd, _PROGRAMS)
    return None if setting is None else setting.decode("utf-8", "replace")


async def _program_set(git: str, cwd: Path, pattern: str) -> tuple[int, bytes | None]:
    """Git's exit code, and the first setting of the repository's own that fits the pattern."""
    listed = ("config", "--includes", "--show-scope", "-z", "--get-regexp")
    code, found = await _run(git, cwd, (*listed, pattern))
    parts = found.split(b"\0") if code == 0 else []
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = entry.partition(b"\n")
        is_switch = name.startswith(_SWITCHED) and value.lower() in _SWITCHES
        if scope in _OF_THE_REPOSITORY and not is_switch:
            return code, name
    return code, None


async def _run(git: str, cwd: Path, words: tuple[str, ...]) -> tuple[int, bytes]:
    try:
        process = await asyncio.create_subprocess_exec(
            git,
            *_SWITCHED_OFF,
            *words,
            cwd=cwd,
            env=_environment(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return 1, (error.strerror or type(error).__name__).encode()
    try:
        said, problem = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code = process.returncode or 0
    return code, problem if code and not said else said


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name not in _ELSEWHERE}
    return {**kept, **_NO_NETWORK}
