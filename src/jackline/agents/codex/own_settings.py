"""Find out how far the user's own settings of Codex let it change the disk.

Rules: (1) of all files that Codex would read the strictest counts: a project's own, too, though it
counts for Codex only where the user trusts the project; (2) where the user wants to be asked about
every command there is nobody to ask, so nothing may be changed; (3) what cannot be read, or is not
known here, counts as the strictest.
Not here: the command line (start.py). What an administrator demands (requirements.toml), Codex
enforces itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from jackline.agents.codex.rollout import codex_home
from jackline.foreign_files import SETTINGS_BYTES, read_foreign

Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]

_NAME = "config.toml"
_OF_THE_MACHINE = Path("/etc/codex") / _NAME
_STRICTEST: Sandbox = "read-only"
# By setting, the values with which Codex changes the working folder without a question.
_CHANGING = {
    "sandbox_mode": ("workspace-write", "danger-full-access"),
    # The sandbox is left by asking alone; `untrusted` asks about almost every command.
    "approval_policy": ("on-request", "on-failure", "never"),
    "default_permissions": (":workspace", ":danger-no-sandbox", ":danger-full-access"),
}


def strictest_sandbox(usual: Sandbox, environment: Mapping[str, str], cwd: Path) -> Sandbox:
    """The usual sandbox, or the strictest where the user's own settings want that."""
    folder = cwd.absolute()
    homes = [each / ".codex" for each in (folder, *folder.parents)]
    files = [_OF_THE_MACHINE, codex_home(environment) / _NAME, *(each / _NAME for each in homes)]
    return usual if all(_may_change(file, folder) for file in files) else _STRICTEST


def _may_change(file: Path, folder: Path) -> bool:
    try:
        document = tomllib.loads(read_foreign(file, SETTINGS_BYTES).decode())
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError, RecursionError):
        return False
    projects = _table(document.get("projects"))
    above = [_table(projects.get(str(each))) for each in (folder, *folder.parents)]
    if any(each.get("trust_level") == "untrusted" for each in above):
        return False
    return all(
        table[name] in values
        for table in _tables(document)
        for name, values in _CHANGING.items()
        if name in table
    )


def _tables(document: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield document
    if "profile" in document:
        yield _table(_table(document.get("profiles")).get(str(document["profile"])))


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
