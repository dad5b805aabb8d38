"""Decide in which folder a call may work, and of which folders its client may hear.

Rules: (1) by default the client's own; (2) another one only at or below it, or a configured one;
(3) links are followed before judging; (4) runs and sessions of any other folder are unknown to a
client: other projects' answers are not its model's to read, nor their agents its to end. A client
that told no folder knows those of the configured ones alone.
Not here: how the client tells its folder (server.py), what a folder inside the project may bring
(nested_folders.py), paths inside the folder (batches/).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from jackline.errors import BadArgumentError
from jackline.mcp_server.settings import AgentSettings

Sight: TypeAlias = Callable[[str | None], bool]
"""Whether a client may hear of what was done in this folder."""


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
    if base_of(folder, client, settings) is None:
        raise BadArgumentError(
            f"{folder} lies outside the project folder.",
            next=f'The user may allow it in their own jackline.toml: agents.folders = ["{folder}"]',
        )
    return folder


def chosen_folders(client: Path | None, settings: AgentSettings) -> tuple[Path, ...]:
    """The folders that the user chose: the client's own and the configured ones."""
    return tuple(each for each in (client, *settings.folders) if each is not None)


def base_of(folder: Path, client: Path | None, settings: AgentSettings) -> Path | None:
    """The folder by which one works there: the nearest that the user chose; None without one."""
    allowed = [each.resolve() for each in chosen_folders(client, settings)]
    above = [each for each in allowed if folder.is_relative_to(each)]
    return max(above, key=lambda each: len(each.parts), default=None)


def sight_of(client: Path | None, settings: AgentSettings) -> Sight:
    """Of which folders this client may hear; one that is gone is judged by its name."""

    def sees(folder: str | None) -> bool:
        if not folder or not Path(folder).is_absolute():
            return False
        try:
            return base_of(Path(folder).resolve(), client, settings) is not None
        except (OSError, RuntimeError, ValueError):
            return False

    return sees


def _followed(meant: Path) -> Path | None:
    try:
        folder = meant.resolve()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None  # a circle of links, or no name for a file
