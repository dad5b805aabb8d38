"""Decide which tools Claude Code offers an agent, and which uses of them need no permission.

Rules: (1) a bare name in `--allowedTools` allows every use of that tool, wherever the file is, so
no file tool is ever passed so: reading in the folder needs no permission, and edits are allowed as
`Edit(./**)`, which the client limits to its folder, links and its own settings included; (2) a rule
with brackets was written by the user, and is passed as it is; (3) a tool can be offered without
being allowed: then the user's own settings of Claude Code decide about each use.
"""

from __future__ import annotations

from collections.abc import Sequence

_EDITING = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
FILE_TOOLS = _EDITING | {"Read", "Grep", "Glob", "LS", "NotebookRead"}
"""The tools that keep to the folder, as far as nothing in brackets says otherwise."""
_OFFERED_ONLY = "(nothing-by-jackline)"


def base_of(rule: str) -> str:
    """The tool's name."""
    return rule.partition("(")[0]


def offered_only(name: str) -> str:
    """The rule by which a tool is offered, and no use of it allowed."""
    return base_of(name) + _OFFERED_ONLY


def is_offered_only(rule: str) -> bool:
    """Whether it is such a rule."""
    return rule.endswith(_OFFERED_ONLY)


def allowed_rules(names: Sequence[str]) -> list[str]:
    """What needs no permission, for `--allowedTools`."""
    rules = []
    for name in names:
        if name in _EDITING:
            rules.append("Edit(./**)")
        elif name not in FILE_TOOLS and not is_offered_only(name):
            rules.append(name)
    return list(dict.fromkeys(rules))


def offered_names(names: Sequence[str]) -> list[str]:
    """The built-in tools that are offered, for `--tools`; no other can be used."""
    return list(dict.fromkeys(base_of(name) for name in names if not name.startswith("mcp__")))
