"""The map of the house names every room, and no room that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = {
    path.name for path in (ROOT / "src" / "jackline").iterdir() if (path / "__init__.py").is_file()
}


def test_every_room_is_on_the_map_with_its_line() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = text[text.index("| # | room") : text.index("## The way of an error")]
    named = set(re.findall(r"`(\w+)/`", table))
    assert named == ROOMS
