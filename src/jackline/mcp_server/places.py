"""Decide in which folder a call may work.

Laws: (1) by default the client's own; (2) another one only at or below it, or a configured one;
(3) links are followed before judging.
Not here: how the client tells its folder (server.py), paths inside the folder (batches/).
"""

from __future__ import annotations

from pathlib import Path

from jackline.errors import BadArgumentError
from jackline.mcp_server.settings import AgentSettings


def working_folder(asked: str | None, client: Path | None, settings: AgentSettings) -> Path:
    """Where the call works, absolute and resolved; BadArgumentError when it must not, or cannot."""
    if asked is None and client is None:
        raise BadArgumentError(
            "This client did not tell in which folder it works.",
            next="Give `cwd`, a folder below one of agents.folders in the user's own jackline.toml;"
            " or connect through `jackline mcp`, which tells its own.",
        )
    meant = (client or Path("/")) / (asked or ".")
    if asked is not None and client is None and not Path(asked).is_absolute():
        raise BadArgumentError(f"cwd must be absolute here, not {asked!r}.")
    folder = _followed(meant)
    if folder is None:
        raise BadArgumentError(f"There is no folder {asked or meant}.", next="Check cwd.")
    allowed = [each.resolve() for each in (client, *settings.folders) if each is not None]
    if not any(folder.is_relative_to(each) for each in allowed):
        raise BadArgumentError(
            f"{folder} lies outside the project folder.",
            next=f'The user may allow it in their own jackline.toml: agents.folders = ["{folder}"]',
        )
    return folder


def _followed(meant: Path) -> Path | None:
    try:
        folder = meant.resolve()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None  # a circle of links, or no name for a file
