"""Find the Markdown files, and where each is in the site.

Rules: (1) an installed package has the files beside this module, a checkout where they are
written; (2) a page's name is its path below docs/ without the ending; pages of the project's own
folder have theirs in capitals (SECURITY), so that the two cannot collide; (3) a file that is
neither a page nor a picture of one has no address.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from jackline.errors import UnreadableError

FIRST = "index"
# Pages of the project's own folder that pages of docs/ link to.
_BESIDE = ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "README", "SECURITY")
_DOCS = "docs/"
_PICTURES = (".svg", ".png")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its name in the site, its path in the project, its Markdown."""

    name: str
    path: str
    text: str

    @property
    def title(self) -> str:
        """The first heading, as plain text."""
        found = _TITLE.search(self.text)
        return re.sub(r"[`*]", "", found[1]) if found else self.name


class Sources:
    """All pages and pictures below one folder; what they contain is read when it is wanted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        docs = root / "docs"
        pages = {_name(path.relative_to(docs)): path for path in docs.rglob("*.md")}
        pages |= {name: root / f"{name}.md" for name in _BESIDE}
        self.pages = {name: path for name, path in sorted(pages.items()) if path.is_file()}
        """The file of each page, by the page's name."""
        self.pictures = {
            path.relative_to(docs).as_posix(): path
            for path in sorted(docs.rglob("*"))
            if path.suffix in _PICTURES
        }
        """The file of each picture, by its address."""

    @classmethod
    def installed(cls) -> Self:
        """Those of this installation: packaged, or of the checkout that it runs from."""
        for root in (Path(__file__).parent / "project", Path(__file__).parents[3]):
            if (root / "docs" / f"{FIRST}.md").is_file():
                return cls(root)
        raise UnreadableError(
            "the pages of the documentation are not installed",
            hint="install the package again, as it was released",
        )

    def page(self, name: str) -> Page:
        """The page of this name, which exists."""
        file = self.pages[name]
        return Page(name, file.relative_to(self.root).as_posix(), file.read_text("utf-8"))

    def address(self, source: str, target: str) -> str | None:
        """Where a link of the page `source` leads, relative to that page; None for nowhere.

        `target` is written as on GitHub, relative to the file: `../SECURITY.md#money`.
        """
        if ":" in target or target.startswith("#"):
            return target
        path, mark, anchor = target.partition("#")
        here = self.pages[source].relative_to(self.root).as_posix()
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        found = self._found(there)
        if found is None:
            return None
        relative = posixpath.relpath(found, posixpath.dirname(source) or ".")
        return f"{relative}{mark}{anchor}"

    def _found(self, path: str) -> str | None:
        """The address of a file of the project, if it is a page or a picture."""
        below = path.removeprefix(_DOCS)
        if below in self.pictures and path.startswith(_DOCS):
            return below
        name = path.removesuffix(".md") if "/" not in path else _name(Path(below))
        if name not in self.pages and f"{below}/{FIRST}" in self.pages:
            name = f"{below}/{FIRST}"
        return f"{name}.html" if name in self.pages else None


def _name(path: Path) -> str:
    return path.with_suffix("").as_posix()
