"""Review every Python file of a repository, then judge the findings together.

    jackline run examples/review_repo.py --folder src/jackline/failures

Without a key, against the simulator:

    jackline simulate --port 8999 &
    JACKLINE_UPSTREAM=http://127.0.0.1:8999 ANTHROPIC_API_KEY=none \\
        jackline run examples/review_repo.py --folder src/jackline/failures
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from jackline import Budget, agent, flow, parallel, phase, step


class Finding(BaseModel):
    """One thing that should be different."""

    line: int
    says: str
    weight: Literal["nit", "should", "must"]


class Review(BaseModel):
    """What was found in one file."""

    findings: list[Finding]


class Judgement(BaseModel):
    """What to do first."""

    summary: str
    first: list[str]


def python_files(folder: str) -> list[str]:
    """All Python files, as a step: a resumed run reviews the same ones."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.py"))


@flow(budget=Budget(dollars=20))
async def review(folder: str = ".", focus: str = "bugs that a user would meet") -> Judgement:
    """Review the folder."""
    async with phase("read"):
        names = await step(python_files, folder)
        reviews = await parallel(
            (
                agent(
                    f"Review {name} for {focus}.",
                    schema=Review,
                    tools=["read", "search"],
                    cwd=folder,
                    label=name,
                )
                for name in names
            ),
            limit=50,
        )
        # A review that misses a tenth of the files would be a lie.
        reviews.require(len(names) * 9 // 10)
    async with phase("judge"):
        found = [f.model_dump() for each in reviews.values for f in each.findings]
        return await agent(
            f"{reviews.summary}. Judge these findings: {found}", schema=Judgement, label="judge"
        )
