"""Tools that write, without the files by which somebody else's program would be started.

Rules: (1) protected are git folders, in any layout, with what would make one of a folder, and the
settings of agents' programs and of Jackline: whoever runs git there, or starts an agent, would run
what they name; (2) a path is judged below the agent's folder, with all links followed; (3) what
cannot be read is protected. A flow that must write there passes `shell`, or its own tool.
"""

from __future__ import annotations

import os
from pathlib import Path

from jackline.batches.arguments import inside
from jackline.batches.permission import is_in_git, is_in_settings
from jackline.batches.policy import names_git, names_settings
from jackline.batches.threads import in_own_thread
from jackline.batches.tool import JsonObject, Tool, ToolContext, ToolFailedError, ToolOutput
from jackline.foreign_repositories.git_folders import is_git_layout


class ProtectedFilesTool:
    """A tool that writes to `path`, and to no protected file."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.input_schema = tool.input_schema

    def read_only(self, arguments: JsonObject) -> bool:
        """As the tool itself."""
        return self._tool.read_only(arguments)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """What the tool gives; ToolFailedError for a protected file."""
        path = arguments.get("path")
        if isinstance(path, str):
            await in_own_thread(lambda: _check(context.cwd, path), "jackline-protected-files")
        return await self._tool.run(arguments, context)


def _check(folder: Path, name: str) -> None:
    path = inside(folder, name)
    root = folder.resolve()
    parts = path.relative_to(root).parts
    below = [root.joinpath(*parts[:count]) for count in range(len(parts))]
    if any(map(names_settings, (name, *parts))) or is_in_settings(path, root):
        what = "settings that programs follow"
    elif (
        any(map(names_git, (name, *parts)))
        or is_in_git(path, root)
        or any(map(_becomes_git_folder, below, parts))
    ):
        what = "a git folder, whose settings git follows"
    else:
        return
    raise ToolFailedError(
        f"{name!r} is protected: it is part of {what}; name another file", ended_by="protected"
    )


def _becomes_git_folder(folder: Path, name: str) -> bool:
    """Whether the folder is a repository's own as soon as there is something of this name."""
    try:
        names = {each.lower() for each in os.listdir(folder)}  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    # Some file systems ignore case, or what comes after a name.
    return is_git_layout(names | {name.lower().partition(":")[0].rstrip(". ")})
