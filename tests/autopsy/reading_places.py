"""Find the real transcripts among the tests' data, and read them.

Laws: (1) nothing is written into the data; (2) times come out in the host's zone, so tests compare
moments, not texts.
Not here: invented lines (test_reading_robust.py).
"""

from __future__ import annotations

from pathlib import Path

from jackline.autopsy.reading import read
from jackline.autopsy.sources import find
from jackline.autopsy.stores import Stores
from jackline.autopsy.story import AgentStory, Evidence

DATA = Path(__file__).parent.parent / "data" / "transcripts"
NOWHERE = Stores(Path("nowhere"), Path("nowhere"))


def read_place(*places: Path) -> Evidence:
    return read(find([str(place) for place in places], stores=NOWHERE))


def kept(run: str) -> Evidence:
    """What the client kept of a run."""
    folder = DATA / run
    return read_place(folder / ("sessions" if run.startswith("j_") else "projects"))


def printed(run: str) -> Evidence:
    """What the client printed during a run."""
    return read_place(DATA / run / "stream.jsonl")


def by_label(evidence: Evidence) -> dict[str | None, AgentStory]:
    return {story.label: story for story in evidence.stories}


def only_main(evidence: Evidence) -> AgentStory:
    (main,) = [story for story in evidence.stories if story.role == "main"]
    return main
