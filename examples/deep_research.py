"""Research a question over a folder of texts: scope, search, fetch, verify, write.

About a hundred agents, each of them durable: kill this at any moment and resume it.

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
MOST_CLAIMS = 60


class Plan(BaseModel):
    """What to look for."""

    angles: list[str] = Field(min_length=3, max_length=8)


class Hits(BaseModel):
    """What was found, each finding with the place where it stands."""

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
    found = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.md"))
    if not found:
        raise FileNotFoundError(f"there is no .md file in {folder}")
    return found


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
        notes = await parallel(
            agent(
                f"Read {names[place % len(names)]}, and note what part {place // len(names) + 1} "
                f"of it says about: {question}",
                schema=Hits,
                tools=["read"],
                cwd=corpus,
                label=f"read {place}: {names[place % len(names)]}",
            )
            for place in range(readers)
        )
    claims = [claim for hits in (*found.values, *notes.values) for claim in hits.findings]
    claims = list(dict.fromkeys(claims))[:MOST_CLAIMS]
    async with phase("verify"):
        checked = await parallel(
            agent(f"Does this hold? {claim}", schema=Verdict, label=f"verify {number}")
            for number, claim in enumerate(claims)
        )
    async with phase("write"):
        # One outcome for each claim, in their order; a check that failed counts as no support.
        standing = [
            claim
            for claim, check in zip(claims, checked, strict=True)
            if check.value is not None and check.value.holds
        ]
        return await agent(
            f"Answer {question!r} from these findings: {standing}. Checks: {checked.summary}.",
            schema=Report,
            label="write",
        )
