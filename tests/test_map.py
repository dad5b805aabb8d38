"""ARCHITECTURE.md lists every package, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {
    path.name for path in (ROOT / "src" / "jackline").iterdir() if (path / "__init__.py").is_file()
}


def test_every_package_is_in_the_table() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = text[text.index("| # | package") : text.index("## The path of an error")]
    named = set(re.findall(r"`(\w+)/`", table))
    assert named == PACKAGES
