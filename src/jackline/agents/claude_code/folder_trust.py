"""Decide whether Claude Code may follow the settings of the folder in which an agent works.

`claude -p` never asks whether a folder is trusted: it runs the hooks of `.claude/settings.json`,
starts the servers of every `.mcp.json` from the folder up to the root of the file system, and lets
the project's `env` replace the gateway's address. Nobody is there to ask, so the user must have
answered before.

Rules: (1) trusted is a folder that the user accepted in Claude Code itself (its own record, of the
folder or one above), or that `agents.folders` names; (2) every folder from there upwards that
brings settings must be trusted, too, because those are followed as well; the user's home and Claude
Code's own folder are the user's; (3) below a folder of `agents.folders` another one is trusted as
long as it brings nothing of its own, as for agents of models; (4) a worktree is trusted with the
repository that made it; (5) a record that lies in the working folder counts for nothing: an agent
that works there could have written it; (6) links are followed before anything is compared; what
cannot be read is not trusted.
Not here: how the client is started (runner.py), nested folders of models' agents
(mcp_server/permissions.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from jackline.agents.claude_code.transcript import config_folder
from jackline.agents.process.program import FolderTrust
from jackline.foreign_files import object_in
from jackline.foreign_repositories.git_folders import main_work_tree
from jackline.outside_names import printable

# Older versions keep what was typed in the same file.
_RECORD_BYTES = 32 << 20
_SETTINGS = (".claude", ".mcp.json")
_INSTRUCTIONS = ("CLAUDE.md", "CLAUDE.local.md")


def folder_trust(
    cwd: Path, environment: Mapping[str, str], trusted: Sequence[Path] = ()
) -> FolderTrust:
    """Whether the user trusts all that Claude Code would follow there; `trusted` are the user's."""
    try:
        folder = cwd.resolve()
        chosen = {each.resolve() for each in trusted}
        accepted = _accepted(folder, environment)
        own = {config_folder(environment).resolve(), _home(environment).resolve() / ".claude"}
        home = _home(environment).resolve()
        above = [each for each in (folder, *folder.parents) if each != home]
        brought = {each: list(_brought(each, own)) for each in above}
        tree = _work_tree(folder)
    except (OSError, RuntimeError, ValueError):
        return FolderTrust(trusted=False)
    settings = [each for each in above if any(name in _SETTINGS for name in brought[each])]

    def is_trusted(each: Path) -> bool:
        return any(
            name in chosen or not accepted.isdisjoint((name, *name.parents))
            for name in _names(each, tree)
        )

    is_chosen = is_trusted(folder) or any(
        not chosen.isdisjoint(name.parents) for name in _names(folder, tree)
    )
    if is_chosen and all(map(is_trusted, settings)):
        return FolderTrust(trusted=True)
    found = [str(each / name) for each in above for name in brought[each]]
    return FolderTrust(trusted=False, notice=_notice(folder, settings, is_trusted, found))


def _work_tree(folder: Path) -> tuple[Path, Path] | None:
    """The worktree in which the folder lies, and that of the repository to which it belongs."""
    top = next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)
    main = None if top is None else main_work_tree(top)
    return None if top is None or main is None else (top, main)


def _names(folder: Path, tree: tuple[Path, Path] | None) -> Iterator[Path]:
    """The folder itself, and in a worktree the same one of its repository."""
    yield folder
    if tree is not None and folder.is_relative_to(tree[0]):
        yield tree[1] / folder.relative_to(tree[0])


def _notice(
    folder: Path,
    settings: Sequence[Path],
    is_trusted: Callable[[Path], bool],
    found: Sequence[str],
) -> str:
    if not found:
        return ""
    where = next((each for each in reversed(settings) if not is_trusted(each)), folder)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"Claude Code follows only your own settings in {printable(str(folder))}, not"
        f" {printable(found[0])}{more}: you have not trusted {printable(str(where))}."
        f" To have them followed, run `claude` once there and accept, or list it in your own"
        " jackline.toml: agents.folders"
    )


def _accepted(folder: Path, environment: Mapping[str, str]) -> set[Path]:
    """The folders that the user accepted in Claude Code's own dialog."""
    chosen = environment.get("CLAUDE_CONFIG_DIR")
    record = ((Path(chosen) if chosen else _home(environment)) / ".claude.json").resolve()
    if record.is_relative_to(folder):
        return set()
    projects = object_in(record, _RECORD_BYTES).get("projects")
    if not isinstance(projects, dict):
        return set()
    return {
        Path(name)
        for name, kept in projects.items()
        if isinstance(kept, dict) and kept.get("hasTrustDialogAccepted") is True
    }


def _home(environment: Mapping[str, str]) -> Path:
    home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(home or Path.home())


def _brought(folder: Path, own: set[Path]) -> Iterator[str]:
    """What Claude Code would read in this folder."""
    for name in (*_SETTINGS, *_INSTRUCTIONS):
        if os.path.lexists(folder / name) and (folder / name).resolve() not in own:
            yield name
