"""Migrate modules one by one in git worktrees of their own, with tests and clean-up.

    jackline run examples/migrate.py --modules '["parser", "printer"]' --repo ../my-project

Without a key, `jackline simulate` plays the vendor, as in deep_research.py: it answers, and changes
no file.

Each agent works in its own worktree beside the repository, on a branch of its own. When the run has
ended, by whatever way, clean worktrees are removed; one with uncommitted work is never deleted, and
`jackline resources` lists it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel

from jackline import Outcome, agent, ctx, flow, parallel, phase, step


class Migrated(BaseModel):
    """What was done to one module."""

    summary: str
    tests_pass: bool


def worktree(repo: str, name: str) -> str:
    """A worktree for one module; made once, also when the run is resumed."""
    root, branch = Path(repo).resolve(), f"migrate-{name}"
    path = root.with_name(f"{root.name}-{branch}")
    if not path.exists():
        known = git(root, "branch", "--list", branch)
        git(root, "worktree", "add", *([str(path), branch] if known else ["-b", branch, str(path)]))
    return str(path)


def git(root: Path, *words: str) -> str:
    """What git prints; an error when it fails."""
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


def told(outcome: Outcome[object]) -> None:
    """Runs at every end of every agent, also when its process had died."""
    sys.stderr.write(f"{outcome.label} ended by {outcome.terminated_by.value}\n")


async def migrate_one(repo: str, name: str, goal: str) -> Migrated:
    """One module, in its own worktree."""
    path = await step(worktree, repo, name)
    # A release of these words removes a git worktree, but only one with nothing left to lose.
    await ctx.resource(f"worktree/{name}", release=f"worktree {path}")
    return await agent(
        f"Migrate the module {name}: {goal}. Run its tests. Commit what works.",
        schema=Migrated,
        tools=["shell", "read", "write", "edit", "search"],
        cwd=path,
        label=name,
        on_end=told,
    )


@flow
async def migrate(modules: list[str], repo: str = ".", goal: str = "type annotations") -> list[str]:
    """Migrate all modules, and say which are done."""
    async with phase("migrate"):
        # Any awaitable will do for parallel(), this one with steps and agents of its own.
        batch = await parallel(migrate_one(repo, name, goal) for name in modules)
    return [
        f"{name}: {outcome.value.summary if outcome.value else outcome.evidence.says}"
        for name, outcome in zip(modules, batch, strict=True)
    ]
