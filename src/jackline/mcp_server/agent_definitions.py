"""Read the agent definitions of Claude Code: `agents/NAME.md` of project and user, and of plugins.

Rules: (1) the project's go before the user's, and nearer folders before those above; (2) a file
that cannot be read as a definition is skipped, as Claude Code does; (3) only plain text is read
from the front matter; (4) of plugins, only those that are installed for this user or project and
enabled by the nearest settings count; their agents are named `plugin:agent`, with the folders
between; (5) nothing outside a project's repository is read for the project, and nothing outside a
plugin's own folder for the plugin, whatever links lead there: git keeps links, and a definition is
shown to a model. The user's own folder may hold any; (6) of each file only the front matter is read
until one is chosen, and of a project only so many files, whatever a repository brings.
Not here: plugins that an administrator forces on or that `--plugin-dir` adds for one session,
starting the agent (agent_orders.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from jackline.errors import BadArgumentError
from jackline.foreign_files import (
    PROJECT_BYTES,
    SETTINGS_BYTES,
    is_inside,
    object_in,
    read_beginning,
)

GENERAL = "general-purpose"
"""Claude Code's own all-rounder: an agent without a definition."""
_FENCE = "---"
_MOST_BYTES = 1_000_000
_MOST_FILES = 1_000
_MOST_ENTRIES = 10_000
# A front matter has some hundred bytes, with examples in its description some thousand.
_MOST_FRONT_BYTES = 16_384
_MOST_FRONT_LINES = 400
_LONGEST_NAME = 200
_MOST_NAMES = 50
"""Of those that an error lists."""


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """One sort of agent."""

    name: str
    description: str = ""
    system: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    """None: all that the user's settings allow."""

    @classmethod
    def read(cls, file: Path, most: int) -> AgentDefinition | None:
        """The definition in the beginning of a file; None when there is none."""
        try:
            return cls.parse(read_beginning(file, most).decode("utf-8", "replace"))
        except OSError:
            return None

    @classmethod
    def parse(cls, text: str) -> AgentDefinition | None:
        """The definition that a file's text holds; None when it holds none."""
        text = text.removeprefix("\ufeff")
        lines = text[:_MOST_FRONT_BYTES].splitlines(keepends=True)[:_MOST_FRONT_LINES]
        if not lines or lines[0].strip() != _FENCE:
            return None
        end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == _FENCE), None)
        if end is None:
            return None
        # Each key with its value's lines: on its own line, indented below it, or as a list.
        fields: dict[str, list[str]] = {}
        current: list[str] = []
        for line in lines[1:end]:
            if line[:1] in (" ", "\t", "-") or not line.strip():
                current.append(_plain(line.strip().removeprefix("- ")))
                continue
            key, colon, value = line.partition(":")
            if colon:
                # `>` and `|` only say that the text follows.
                bare = "" if value.strip() in (">", "|", ">-", "|-") else _plain(value.strip())
                current = fields.setdefault(key.strip(), [])
                current.append(bare)
        whole = {key: " ".join(part for part in parts if part) for key, parts in fields.items()}
        name, model = whole.get("name", ""), whole.get("model", "")
        if not name or len(name) > _LONGEST_NAME:
            return None
        tools = _listed(fields["tools"]) if "tools" in fields else None
        return cls(
            name,
            whole.get("description", ""),
            text[sum(map(len, lines[: end + 1])) :].strip() or None,
            None if model in ("", "inherit") else model,
            # An empty list is a list: no tool. `*` is what is meant without one.
            None if tools == ("*",) else tools,
        )


class DefinitionFolder(NamedTuple):
    """A folder of definitions, and the one out of which none of them may lie; None: anywhere."""

    folder: Path
    within: Path | None


class DefinitionFile(NamedTuple):
    """A file with a definition, by the name of its agent; `plugin` is the folder of its plugin."""

    name: str
    file: Path
    plugin: Path | None = None


def definition_of(
    name: str, folders: Iterable[DefinitionFolder], brought: Iterable[DefinitionFile] = ()
) -> AgentDefinition:
    """The definition of that name in the first folder that has it; BadArgumentError lists all.

    `brought` are further ones, by plugins.
    """
    names = {GENERAL}
    for each in chain(_definitions(folders), brought):
        if each.name == name:
            found = AgentDefinition.read(each.file, _MOST_BYTES)
            if found is not None:
                system = found.system
                if system is not None and each.plugin is not None:
                    system = system.replace(_ROOT, str(each.plugin))
                return replace(found, name=name, system=system)
        names.add(each.name)
    if name == GENERAL:
        return AgentDefinition(GENERAL)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    listed = ", ".join(sorted(names)[:_MOST_NAMES])
    raise BadArgumentError(
        f"There is no agent definition {name[:_LONGEST_NAME]!r} for this project or this user.",
        hint=f"Give one of these as subagent_type: {listed}{more}; or leave it out.",
    )


def definition_folders(project: Path | None, claude: Path) -> list[DefinitionFolder]:
    """Where definitions are looked for: in the project, up to its repository, then the user's."""
    inside = [] if project is None else [project, *project.parents]
    top = next((at for at, folder in enumerate(inside) if (folder / ".git").exists()), 0)
    # Not above the repository: others may write there, in a shared folder for temporary files, say.
    inside = inside[: top + 1]
    brought = [DefinitionFolder(each / ".claude" / "agents", inside[-1]) for each in inside]
    return [*brought, DefinitionFolder(claude / "agents", None)]


def _definitions(folders: Iterable[DefinitionFolder]) -> Iterator[DefinitionFile]:
    folders = list(folders)
    for bounded in (True, False):
        files = (
            file
            for each in folders
            if (each.within is not None) == bounded
            for file in definition_files(*each)
        )
        for file in islice(files, _MOST_FILES):
            found = AgentDefinition.read(file, _MOST_FRONT_BYTES)
            if found is not None:
                yield DefinitionFile(found.name, file)


def definition_files(folder: Path, within: Path | None) -> list[Path]:
    """The Markdown files below a folder, among its first entries; none out of `within`."""
    if within is not None and not is_inside(folder, within):
        return []
    found: list[Path] = []
    left = _MOST_ENTRIES
    # What is not ours to read is left out.
    for at, folders, names in os.walk(folder):
        folders.sort()
        left -= len(folders) + len(names)
        found += [Path(at, name) for name in names if name.endswith(".md")]
        if left <= 0:
            break
    chosen = sorted(found)[:_MOST_FILES]
    return [file for file in chosen if within is None or is_inside(file, within)]


def _plain(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _listed(parts: Iterable[str]) -> tuple[str, ...]:
    """Names between commas, though not those within brackets: `Bash(git log, git show), Read`."""
    names, depth, current = [], 0, ""
    for sign in ", ".join(part.strip("[]") for part in parts if part):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth <= 0:
            names.append(current)
            current = ""
        else:
            current += sign
    return tuple(name for part in (*names, current) if (name := _plain(part.strip())))


_ROOT = "${CLAUDE_PLUGIN_ROOT}"


def definitions_of_plugins(project: Path | None, claude: Path) -> Iterator[DefinitionFile]:
    """All of them, for a client that works in `project` and keeps its things in `claude`."""
    files = [claude / "settings.json"]
    if project is not None:
        theirs = [project / ".claude" / name for name in ("settings.json", "settings.local.json")]
        files += [file for file in theirs if is_inside(file, project)]
    enabled: dict[str, object] = {}
    for file in files:
        most = SETTINGS_BYTES if file.parent == claude else PROJECT_BYTES
        enabled |= _object(object_in(file, most).get("enabledPlugins"))
    installed = object_in(claude / "plugins" / "installed_plugins.json")
    for plugin, places in _object(installed.get("plugins")).items():
        for place in map(_object, places if isinstance(places, list) else ()):
            at, path = place.get("projectPath"), place.get("installPath")
            # One that was installed for another project is not there for this one.
            here = at is None or (project is not None and str(at) == str(project))
            if here and isinstance(path, str):
                if enabled.get(plugin) is True:
                    yield from _brought(plugin.partition("@")[0], Path(path))
                break


def _brought(plugin: str, folder: Path) -> Iterator[DefinitionFile]:
    file = folder / ".claude-plugin" / "plugin.json"
    manifest = object_in(file) if is_inside(file, folder) else {}
    named = manifest.get("agents", "./agents")
    for place in [named] if isinstance(named, str) else named if isinstance(named, list) else []:
        path = (folder / str(place)).resolve()
        if not path.is_relative_to(folder.resolve()):
            continue
        for file in definition_files(path, folder) if os.path.isdir(path) else [path]:  # noqa: PTH112 -- Path's own raises for a long name
            found = AgentDefinition.read(file, _MOST_FRONT_BYTES)
            if found is not None:
                between = file.parent.relative_to(path).parts if path != file else ()
                yield DefinitionFile(":".join((plugin, *between, found.name)), file, folder)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
