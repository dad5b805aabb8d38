"""Find the real transcripts among the tests' data, and read them.

Rules: (1) nothing is written into the data; (2) times come out in the host's zone, so tests compare
moments, not texts.
Not here: invented lines (test_robust.py).
"""

from __future__ import annotations

from pathlib import Path

from jackline.transcripts.reader import read
from jackline.transcripts.sources import ClientFolders, find
from jackline.transcripts.story import AgentStory, TranscriptSet

DATA = Path(__file__).parent.parent / "data" / "transcripts"
NOWHERE = ClientFolders(Path("nowhere"), Path("nowhere"))


def read_place(*places: Path) -> TranscriptSet:
    return read(find([str(place) for place in places], stores=NOWHERE))


def saved(run: str) -> TranscriptSet:
    """What the client saved of a run."""
    folder = DATA / run
    return read_place(folder / ("sessions" if run.startswith("j_") else "projects"))


def printed(run: str) -> TranscriptSet:
    """What the client printed during a run."""
    return read_place(DATA / run / "stream.jsonl")


def by_label(evidence: TranscriptSet) -> dict[str | None, AgentStory]:
    return {story.label: story for story in evidence.stories}


def only_main(evidence: TranscriptSet) -> AgentStory:
    (main,) = [story for story in evidence.stories if story.role == "main"]
    return main
