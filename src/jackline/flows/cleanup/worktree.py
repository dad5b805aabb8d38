"""Remove a git worktree that holds nothing unsaved, and no other.

Laws: (1) a worktree with a changed, new or unreadable file, or with commits that are on no branch,
is kept, and the reason told, whatever git was told not to show; (2) nothing is forced: git itself
refuses what we overlook, and every worktree with submodules; (3) a worktree that is gone is
released; (4) files that git ignores are no work; (5) one whose repository names programs of its own
is left alone (foreign_repositories/).
Not here: making worktrees.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from jackline.foreign_repositories import ForeignRepositoryError, ask_git

_PREFIX = "worktree "
# For our questions, and for git's own check before it removes.
_PLAIN = ("-c", "status.showUntrackedFiles=normal")


def release_of_worktree(path: Path) -> str:
    """What `release=` says for a worktree: `ctx.resource(name, release=release_of_worktree(p))`."""
    return f"{_PREFIX}{path.resolve()}"


def worktree_of(release: str) -> Path | None:
    """The worktree that such a release means; None when it means something else."""
    return Path(release.removeprefix(_PREFIX)) if release.startswith(_PREFIX) else None


async def remove_if_clean(path: Path) -> str:
    """Why the worktree was kept; empty when it is gone."""
    if not await asyncio.to_thread(path.exists):
        return ""
    try:
        return await _remove(path)
    except ForeignRepositoryError as error:
        return f"kept: git is not run there: {error.why}; look at it, then `git worktree remove`"


async def _remove(path: Path) -> str:
    code, said = await _git(path, "status", "--porcelain", "--ignore-submodules=all")
    if code:
        return f"kept: git cannot tell whether it is clean ({_text(said)[:100] or code})"
    if said.strip():
        return f"kept: {len(said.splitlines())} changed or new files are not committed"
    if overlooked := await _overlooked(path):
        return f"kept: git was told to overlook changes, in {overlooked} files"
    # With the worktree goes the only name of what was committed without a branch.
    code, said = await _git(path, "for-each-ref", "--count=1", "--contains", "HEAD")
    if code or not said.strip():
        return "kept: its last commit is on no branch (`git branch NAME` there saves it)"
    code, said = await _git(path, "worktree", "remove", str(path))
    return f"kept: {_text(said)[:200]}" if code else ""


async def _overlooked(path: Path) -> int:
    """How many files are there whose changes `git status` never shows."""
    code, said = await _git(path, "ls-files", "-v", "-z")
    if code:
        return 1
    # A small letter: assumed to be unchanged. S: not checked out, if it is really not there.
    marked = [line[2:] for line in said.split(b"\0") if line[:1].islower() or line[:1] == b"S"]

    def there() -> int:
        return sum(os.path.lexists(path / os.fsdecode(name)) for name in marked)

    return await asyncio.to_thread(there)


async def _git(cwd: Path, *words: str) -> tuple[int, bytes]:
    return await ask_git(cwd, *_PLAIN, *words)


def _text(said: bytes) -> str:
    return said.decode("utf-8", "replace").strip()
