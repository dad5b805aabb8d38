"""Remove a git worktree that holds nothing unsaved, and no other.

Laws: (1) a worktree with a changed, new or unreadable file, or with commits that are on no branch,
is kept, and the reason told; (2) nothing is forced: git itself refuses what we overlook; (3) a
worktree that is gone is released.
Not here: making worktrees.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

_PREFIX = "worktree "


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
    code, said = await _git(path, "status", "--porcelain", "--ignored=no")
    if code:
        return f"kept: git cannot tell whether it is clean ({said.strip()[:100] or code})"
    if said.strip():
        return f"kept: {len(said.splitlines())} changed or new files are not committed"
    # With the worktree goes the only name of what was committed without a branch.
    code, said = await _git(path, "for-each-ref", "--count=1", "--contains", "HEAD")
    if code or not said.strip():
        return "kept: its last commit is on no branch (`git branch NAME` there saves it)"
    code, said = await _git(path, "worktree", "remove", str(path))
    return f"kept: {said.strip()[:200]}" if code else ""


async def _git(cwd: Path, *words: str) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *words,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        return 1, str(error)
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode("utf-8", "replace")
