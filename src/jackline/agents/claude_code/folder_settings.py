"""What an agent of Claude Code takes from its folder: notes as text, and rules that deny.

`claude -p` runs the hooks of `.claude/settings.json`, starts the servers of every `.mcp.json` from
the folder up to the root of the file system, lets the project's `env` replace the gateway's
address, and reads all of it again whenever it changes. Agents write files: what one has written,
another must not obey. So it is started with the user's own settings alone, in every folder.

Rules: (1) notes (`CLAUDE.md`) are handed on as text, like `AGENTS.md` by Codex: those from the
folder up to the top of its repository, within bounds, and none through a link out of it; (2) of the
folder's settings only rules that deny or ask are handed on, which nobody can misuse.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from jackline.foreign_files import PROJECT_BYTES, object_in, read_foreign
from jackline.outside_names import printable
from jackline.transcripts.sources import ClientFolders

_SETTINGS = (".claude", ".mcp.json")
_NOTES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
_MOST_NOTES = 100_000
_RULES = ("settings.json", "settings.local.json")
_MOST_RULES = 200
_LONGEST_RULE = 200


def unfollowed_notice(cwd: Path, environment: Mapping[str, str]) -> str:
    """What Claude Code would follow there, and does not as an agent; empty without any."""
    try:
        folder = cwd.resolve()
        home = _home(environment).resolve()
        own = {ClientFolders.of_process(environment).claude.resolve(), home / ".claude"}
        found = [
            each / name
            for each in (folder, *folder.parents)
            for name in _SETTINGS
            if each != home and os.path.lexists(each / name) and (each / name).resolve() not in own
        ]
    except (OSError, RuntimeError, ValueError):
        return ""
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"Claude Code follows only your own settings in {printable(str(folder))}, not"
        f" {printable(str(found[0]))}{more}: agents that work there may write them. What agents"
        " need of it belongs into your own settings of Claude Code, or into `tools` and"
        " `mcp_servers` of the agent."
    )


def notes_of(cwd: Path) -> str:
    """The notes of the project for whoever works there; empty without any."""
    try:
        folder = cwd.resolve()
        above = (folder, *folder.parents)
        top = next((each for each in above if os.path.lexists(each / ".git")), folder)
    except (OSError, RuntimeError, ValueError):
        return ""
    parts = []
    left = _MOST_NOTES
    for each in reversed(above[: above.index(top) + 1]):
        for name in _NOTES:
            try:
                file = (each / name).resolve()
                text = read_foreign(file, left) if file.is_relative_to(top) else b""
            except (OSError, RuntimeError, ValueError):
                continue
            left -= len(text)
            if text.strip():
                where = printable(str(each / name))
                parts.append(f"Notes of the project, {where}:\n\n{text.decode('utf-8', 'replace')}")
    return "\n\n".join(parts)


def denying_rules(cwd: Path) -> dict[str, list[str]]:
    """By kind, the rules of the folder's own settings that only take permissions away."""
    kinds: dict[str, list[str]] = {}
    for name in _RULES:
        permissions = object_in(cwd / ".claude" / name, PROJECT_BYTES).get("permissions")
        for kind in ("deny", "ask"):
            rules = permissions.get(kind) if isinstance(permissions, dict) else None
            usable = (
                rule
                for rule in (rules if isinstance(rules, list) else ())
                if isinstance(rule, str) and len(rule) <= _LONGEST_RULE and rule.isprintable()
            )
            kinds.setdefault(kind, []).extend(islice(usable, _MOST_RULES))
    return {kind: rules[:_MOST_RULES] for kind, rules in kinds.items() if rules}


def _home(environment: Mapping[str, str]) -> Path:
    home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(home or Path.home())
