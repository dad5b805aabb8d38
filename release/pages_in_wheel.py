"""Put the Markdown of the docs into the wheel, where documentation/sources.py looks for it.

Rules: (1) an editable installation gets none: it reads the files of its checkout; (2) pages and
pictures only, no script that lies beside them; (3) it runs in the builder's environment, so it
imports nothing of the project.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found]
    BuildHookInterface,
)

_INTO = "jackline/documentation/project"
_BELOW_DOCS = (".md", ".svg", ".png")


class PagesInWheel(BuildHookInterface):  # type: ignore[misc]
    """Called by the builder before it collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages to what is built."""
        if version != "standard":
            return
        root = Path(self.root)
        docs = [path for path in (root / "docs").rglob("*") if path.suffix in _BELOW_DOCS]
        for path in sorted([*root.glob("*.md"), *docs]):
            place = path.relative_to(root).as_posix()
            build_data["force_include"][str(path)] = f"{_INTO}/{place}"
