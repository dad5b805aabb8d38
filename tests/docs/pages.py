"""The project's pages as the tests of this folder read them.

Not here: what must hold for them (the tests).
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = ROOT / "src" / "jackline"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def all_pages() -> list[Path]:
    """Every page that people read, decisions included."""
    return sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "llms.txt"])


def text_of(page: str) -> str:
    """What one page of docs/ says."""
    return (DOCS / page).read_text("utf-8")


def shell_lines(text: str) -> list[str]:
    """The command lines of a page's shell blocks, with continued lines joined."""
    blocks = [body for language, body in FENCE.findall(text) if language in ("sh", "console")]
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.removeprefix("$ ").strip() for line in joined.splitlines() if line.strip()]
