"""Keep paths inside a folder.

Laws: (1) symbolic links are followed before judging, so that none leads out; (2) a refusal says
where one may go, and never tells what is outside.
Not here: reading and writing (files.py, search.py).
"""

from __future__ import annotations

from pathlib import Path

from jackline.batches.tool import ToolFailedError


def inside(folder: Path, given: str) -> Path:
    """The path that was meant, resolved; ToolFailedError when it lies outside `folder`."""
    if "\0" in given:
        raise ToolFailedError("a path cannot hold a NUL character", ended_by="bad path")
    root = folder.resolve()
    try:
        meant = (root / given).resolve()
    except (OSError, RuntimeError):  # a circle of links, or a name that the system does not take
        raise ToolFailedError(
            f"{given!r} cannot be followed; check the path", ended_by="bad path"
        ) from None
    # A shell would have gone home; a folder named `~` is never what was meant.
    if given.startswith("~") or not meant.is_relative_to(root):
        raise ToolFailedError(
            f"{given!r} is outside the working folder; give a path inside it, such as '.'",
            ended_by="outside the folder",
        )
    return meant


def shown(folder: Path, path: Path) -> str:
    """A path inside the folder as a person or model names it."""
    return path.relative_to(folder.resolve()).as_posix()
