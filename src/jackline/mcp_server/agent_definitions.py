"""Read the agent definitions that a user keeps for Claude Code: `agents/NAME.md`.

Laws: (1) the project's go before the user's, and nearer folders before those above; (2) a file that
cannot be read as one is passed over: Claude Code does the same; (3) only what is plain text is
taken from the front matter, for nothing else is meant there.
Not here: definitions that plugins bring (plugin_definitions.py), starting the agent
(agent_orders.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jackline.errors import BadArgumentError
from jackline.foreign_files import read_beginning

GENERAL = "general-purpose"
"""Claude Code's own all-rounder: an agent without a definition."""
_FENCE = "---"
_MOST_BYTES = 1_000_000
_MOST_FILES = 1_000
_MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """One sort of agent."""

    name: str
    description: str = ""
    system: str | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None
    """None: all that the user's settings allow."""


def definition_of(
    name: str, folders: Iterable[Path], brought: Iterable[AgentDefinition] = ()
) -> AgentDefinition:
    """The definition of that name in the first folder that has it; BadArgumentError lists all.

    `brought` are further ones, by plugins.
    """
    known: dict[str, AgentDefinition] = {}
    for found in (*_definitions(folders), *brought):
        known.setdefault(found.name, found)
    if name in known:
        return known[name]
    if name == GENERAL:
        return AgentDefinition(GENERAL)
    names = ", ".join(sorted({*known, GENERAL}))
    raise BadArgumentError(
        f"There is no agent definition {name!r} for this project or this user.",
        next=f"Give one of these as subagent_type: {names}; or leave it out.",
    )


def definition_folders(project: Path | None, claude: Path) -> list[Path]:
    """Where definitions are looked for: in the project, up to its repository, then the user's."""
    inside = [] if project is None else [project, *project.parents]
    top = next((at for at, folder in enumerate(inside) if (folder / ".git").exists()), 0)
    # Not above the repository: others may write there, in a shared folder for temporary files, say.
    return [*(folder / ".claude" / "agents" for folder in inside[: top + 1]), claude / "agents"]


def read_definition(text: str) -> AgentDefinition | None:
    """The definition that a file holds; None when it holds none."""
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != _FENCE:
        return None
    ends = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == _FENCE), None)
    if ends is None:
        return None
    fields = _fields(lines[1:ends])
    name = " ".join(fields.get("name", ()))
    if not name:
        return None
    model = " ".join(fields.get("model", ()))
    tools = _listed(fields["tools"]) if "tools" in fields else None
    return AgentDefinition(
        name,
        " ".join(fields.get("description", ())),
        "\n".join(lines[ends + 1 :]).strip() or None,
        None if model in ("", "inherit") else model,
        # An empty list is a list: no tool. `*` is what is meant without one.
        None if tools == ("*",) else tools,
    )


def _definitions(folders: Iterable[Path]) -> Iterator[AgentDefinition]:
    for folder in folders:
        for file in definition_files(folder):
            found = read_file(file)
            if found is not None:
                yield found


def definition_files(folder: Path) -> list[Path]:
    """The Markdown files below a folder, among its first entries: it may be a link to anywhere."""
    found: list[Path] = []
    left = _MOST_ENTRIES
    # What is not ours to read is left out: law 2.
    for at, folders, names in os.walk(folder):
        folders.sort()
        left -= len(folders) + len(names)
        found += [Path(at, name) for name in names if name.endswith(".md")]
        if left <= 0:
            break
    return sorted(found)[:_MOST_FILES]


def read_file(file: Path) -> AgentDefinition | None:
    """The definition in this file; None when it has none, or cannot be read (law 2)."""
    try:
        text = read_beginning(file, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    return read_definition(text)


def _fields(lines: Iterable[str]) -> dict[str, list[str]]:
    """Each key with its value's lines: on its own line, indented below it, or as a list."""
    fields: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line[:1] in (" ", "\t", "-") or not line.strip():
            current.append(_plain(line.strip().removeprefix("- ")))
            continue
        key, colon, value = line.partition(":")
        if colon:
            # `>` and `|` only say that the text follows.
            text = "" if value.strip() in (">", "|", ">-", "|-") else _plain(value.strip())
            current = fields.setdefault(key.strip(), [])
            current.append(text)
    return {key: [part for part in parts if part] for key, parts in fields.items()}


def _plain(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _listed(parts: Iterable[str]) -> tuple[str, ...]:
    """Names between commas, though not those within brackets: `Bash(git log, git show), Read`."""
    names, depth, current = [], 0, ""
    for sign in ", ".join(part.strip("[]") for part in parts):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth <= 0:
            names.append(current)
            current = ""
        else:
            current += sign
    return tuple(name for part in (*names, current) if (name := _plain(part.strip())))
