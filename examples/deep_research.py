"""Research a question over a folder of texts: scope, search, fetch, verify, write.

More than sixty agents, each of them durable: kill this at any moment and resume it.

    jackline run examples/deep_research.py --question "What keeps a crew on board?"

Without a key, against the simulator:

    jackline simulate --port 8999 &
    JACKLINE_UPSTREAM=http://127.0.0.1:8999 ANTHROPIC_API_KEY=none \\
        jackline run examples/deep_research.py --question "What keeps a crew on board?"
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from jackline import agent, flow, parallel, phase, step

CORPUS = Path(__file__).parent.parent / "docs"


class Plan(BaseModel):
    """What to look for."""

    angles: list[str] = Field(min_length=3, max_length=8)


class Hits(BaseModel):
    """What a search found: places in the corpus, and why they matter."""

    findings: list[str] = Field(max_length=6)


class Verdict(BaseModel):
    """Whether a finding stands."""

    holds: bool
    because: str


class Report(BaseModel):
    """The answer, and what it rests on."""

    answer: str
    sources: list[str]


def texts(folder: str) -> list[str]:
    """The names of all texts in the corpus; a step, so that a resumed run sees the same list."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.md"))


@flow
async def research(question: str, corpus: str = str(CORPUS), readers: int = 40) -> Report:
    """Answer the question from the corpus."""
    async with phase("scope"):
        names = await step(texts, corpus)
        plan = await agent(f"Split into search angles: {question}", schema=Plan, label="plan")
    async with phase("search"):
        found = await parallel(
            agent(
                f"Search the texts for: {angle}. They are: {', '.join(names)}",
                schema=Hits,
                tools=["search", "read"],
                cwd=corpus,
                label=f"search: {angle}",
            )
            for angle in plan.angles
        )
    async with phase("fetch"):
        chosen = [names[i % len(names)] for i in range(readers)]
        notes = await parallel(
            agent(
                f"Read {name} and note what it says about: {question} (part {place})",
                schema=Hits,
                tools=["read"],
                cwd=corpus,
                label=f"read: {name} {place}",
            )
            for place, name in enumerate(chosen)
        )
    claims = [each for hits in (*found.values, *notes.values) for each in hits.findings]
    async with phase("verify"):
        checked = await parallel(
            agent(f"Does this hold? {claim}", schema=Verdict, label=f"verify {number}")
            for number, claim in enumerate(dict.fromkeys(claims[:60]))
        )
    async with phase("write"):
        standing = [c for c, v in zip(claims, checked.values, strict=False) if v.holds]
        return await agent(
            f"Answer {question!r} from these findings: {standing}", schema=Report, label="write"
        )
