"""Read the agent definitions that plugins of Claude Code bring, by the names it gives them.

Laws: (1) only plugins that are installed, for this user or this project, and enabled by their
settings; the nearest settings decide, as for the client; (2) the name is `plugin:agent`, with the
folders between: `plugin:folder:agent`; (3) what cannot be read is passed over, and nothing outside
of a plugin's own folder is read for it.
Not here: plugins that an administrator forces on, or that `--plugin-dir` brings for one session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jackline.foreign_files import object_in
from jackline.mcp_server.agent_definitions import AgentDefinition, definition_files, read_file

_ROOT = "${CLAUDE_PLUGIN_ROOT}"


def definitions_of_plugins(project: Path | None, claude: Path) -> Iterator[AgentDefinition]:
    """All of them, for a client that works in `project` and keeps its things in `claude`."""
    enabled = _enabled(project, claude)
    for plugin, folder in _installed(project, claude):
        if enabled.get(plugin) is True:
            yield from _brought(plugin.partition("@")[0], folder)


def _enabled(project: Path | None, claude: Path) -> dict[str, object]:
    files = [claude / "settings.json"]
    if project is not None:
        files += [project / ".claude" / name for name in ("settings.json", "settings.local.json")]
    found: dict[str, object] = {}
    for file in files:
        found |= _object(object_in(file).get("enabledPlugins"))
    return found


def _installed(project: Path | None, claude: Path) -> Iterator[tuple[str, Path]]:
    kept = object_in(claude / "plugins" / "installed_plugins.json")
    for plugin, places in _object(kept.get("plugins")).items():
        for place in map(_object, places if isinstance(places, list) else ()):
            theirs, path = place.get("projectPath"), place.get("installPath")
            # One that was installed for another project is not there for this one.
            here = theirs is None or (project is not None and str(theirs) == str(project))
            if here and isinstance(path, str):
                yield plugin, Path(path)
                break


def _brought(plugin: str, folder: Path) -> Iterator[AgentDefinition]:
    manifest = object_in(folder / ".claude-plugin" / "plugin.json")
    named = manifest.get("agents", "./agents")
    for place in [named] if isinstance(named, str) else named if isinstance(named, list) else []:
        path = (folder / str(place)).resolve()
        if not path.is_relative_to(folder.resolve()):
            continue
        for file in definition_files(path) if path.is_dir() else [path]:
            found = read_file(file)
            if found is None:
                continue
            between = file.parent.relative_to(path).parts if path.is_dir() else ()
            system = found.system and found.system.replace(_ROOT, str(folder))
            yield replace(found, name=":".join((plugin, *between, found.name)), system=system)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
