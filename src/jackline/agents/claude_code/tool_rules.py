"""The names of Claude Code's tools, and what its agents may use without asking.

Rules: (1) pure; (2) nothing is loaded: settings are declared with these names, and every verb loads
the settings.
"""

from __future__ import annotations

from collections.abc import Sequence

_EDITING = ("Edit", "MultiEdit", "Write", "NotebookEdit")
_READING = ("Read", "Grep", "Glob", "LS", "NotebookRead")
FILE_TOOLS = frozenset((*_EDITING, *_READING))
"""The tools that keep to the folder, as far as nothing in brackets says otherwise."""
USUAL_TOOLS = (*_READING, *_EDITING, "Agent", "TodoWrite")
"""What an agent has for which nobody names tools; sub-agents (Agent) have no others."""


def base_of(rule: str) -> str:
    """The tool's name."""
    return rule.partition("(")[0]


def allowed_rules(names: Sequence[str], *, edits: bool = True) -> list[str]:
    """What needs no permission, for `--allowedTools`."""
    rules = []
    for name in names:
        if name in _EDITING:
            rules += ["Edit(./**)"] * edits
        elif name not in FILE_TOOLS:
            rules.append(name)
    return list(dict.fromkeys(rules))


def offered_names(names: Sequence[str]) -> list[str]:
    """The built-in tools that are offered, for `--tools`; no other can be used."""
    return list(dict.fromkeys(base_of(name) for name in names if not name.startswith("mcp__")))
