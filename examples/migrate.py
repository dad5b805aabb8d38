"""Migrate modules one by one in git worktrees of their own, with tests and clean-up.

    jackline run examples/migrate.py --modules '["parser", "printer"]' --repo .

Each agent works in its own worktree. A worktree with uncommitted work is never deleted, whatever
ends the agent; `jackline resources` lists what is still there.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from pydantic import BaseModel

from jackline import Outcome, agent, ctx, flow, parallel, phase, step


class Migrated(BaseModel):
    """What was done to one module."""

    summary: str
    tests_pass: bool


def worktree(repo: str, name: str) -> str:
    """A worktree for one module; made once, also when the run is resumed."""
    path = Path(repo).resolve().parent / f"{Path(repo).resolve().name}-migrate-{name}"
    if not path.exists():
        subprocess.run(
            ["git", "-C", repo, "worktree", "add", "-b", f"migrate-{name}", str(path)],
            check=True,
            capture_output=True,
        )
    return str(path)


def told(outcome: Outcome[object]) -> None:
    """Runs at every end of every agent, also after a crash."""
    print(f"{outcome.label}: {outcome.terminated_by.value}")  # noqa: T201 -- an example


async def migrate_one(repo: str, name: str, goal: str) -> Migrated:
    """One module, in its own worktree."""
    path = await step(worktree, repo, name)
    await ctx.resource(f"worktree/{name}", worktree=path)
    return await agent(
        f"Migrate the module {name}: {goal}. Run its tests. Commit what works.",
        schema=Migrated,
        tools=["shell", "read", "write", "search"],
        cwd=path,
        label=name,
        on_end=told,
    )


@flow
async def migrate(modules: list[str], repo: str = ".", goal: str = "type annotations") -> list[str]:
    """Migrate all modules, and say which are done."""
    async with phase("migrate"):
        # Plain asyncio is safe in a flow; parallel() also takes coroutines.
        await asyncio.sleep(0)
        done = await parallel(migrate_one(repo, name, goal) for name in modules)
    return [f"{name}: {done.summary}" for name in modules]
