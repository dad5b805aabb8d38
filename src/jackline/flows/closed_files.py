"""Tools that write, without the files by which somebody else's program would be started.

Rules: (1) closed are git folders, in any layout, with what would make one of a folder, and the
settings of agents' programs and of Jackline: whoever asks git there, or starts an agent, would run
what they name; (2) a path is judged below the agent's folder, with all links followed; (3) what
cannot be looked at is closed.
Not here: writing (batches/files.py). A flow that must write there gives `shell`, or a tool of its
own.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from jackline.batches.git_places import is_in_git
from jackline.batches.paths import inside
from jackline.batches.policy import names_git
from jackline.batches.threads import in_own_thread
from jackline.batches.tool import JsonObject, Tool, ToolContext, ToolFailedError, ToolOutput

CLIENT_SETTINGS = (".claude", ".mcp.json", ".codex", ".agents")
"""Of Claude Code and of Codex: settings with hooks, servers, agents, commands, skills, plugins."""
_CLOSED = frozenset((*CLIENT_SETTINGS, "jackline.toml"))


def is_git_layout(names: Collection[str]) -> bool:
    """Whether git takes a folder with these names, in lower case, for a repository's own."""
    return "head" in names and ("objects" in names or "commondir" in names)


class ClosedFilesTool:
    """A tool that writes to `path`, and to no closed file."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.input_schema = tool.input_schema

    def read_only(self, arguments: JsonObject) -> bool:
        """As the tool itself."""
        return self._tool.read_only(arguments)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What the tool gives; ToolFailedError for a closed file."""
        path = arguments.get("path")
        if isinstance(path, str):
            await in_own_thread(lambda: _check(context.cwd, path), "jackline-closed-files")
        return await self._tool.run(arguments, context)


def _check(folder: Path, given: str) -> None:
    path = inside(folder, given)
    root = folder.resolve()
    parts = path.relative_to(root).parts
    below = [root.joinpath(*parts[:count]) for count in range(len(parts))]
    if any(_plain(part) in _CLOSED for part in parts):
        raise _closed(given, "settings that programs follow")
    if any(map(names_git, parts)) or names_git(given) or is_in_git(path, root):
        raise _closed(given, "a git folder, whose settings git follows")
    if any(map(_becomes_git_folder, below, parts)):
        raise _closed(given, "a git folder, whose settings git follows")


def _plain(name: str) -> str:
    """The name by which a file system may know it: some ignore case, or what comes after it."""
    return name.lower().partition(":")[0].rstrip(". ")


def _becomes_git_folder(folder: Path, name: str) -> bool:
    """Whether the folder is a repository's own as soon as there is something of this name."""
    try:
        names = {each.lower() for each in os.listdir(folder)}  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return is_git_layout(names | {_plain(name)})


def _closed(given: str, what: str) -> ToolFailedError:
    return ToolFailedError(
        f"{given!r} is closed: it is part of {what}; name another file", ended_by="closed"
    )
