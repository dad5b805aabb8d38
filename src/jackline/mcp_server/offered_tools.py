"""Decide which tools an agent is given that nobody watches.

Rules: (1) a model cannot give an agent more than the user allowed: in our configuration, or in the
client's own settings; (2) what stands in brackets after a tool's name says which uses need no
permission, also outside the folder, so only the user can write it: a model's is refused, that of a
definition (which a repository may bring) is left out, and said; (3) Claude Code is offered what was
named, and asks its own settings about what is not allowed here; (4) whoever names tools is never
offered others, though none of them be left.
Not here: what the client is told (agents/claude_code/tool_rules.py), running tools (batches/).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jackline.agents.claude_code.tool_rules import FILE_TOOLS, base_of, offered_only
from jackline.errors import BadArgumentError
from jackline.mcp_server.agent_definitions import AgentDefinition
from jackline.mcp_server.settings import USUAL_TOOLS, AgentSettings
from jackline.outside_names import cut_name

# One name and no more, however the client takes a list of them apart.
_ONE_NAME = re.compile(r"[A-Za-z][\w-]*")


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools for `flows.agent(tools=…)`; None leaves it to the runner and its own settings."""

    tools: list[str] | None
    notes: tuple[str, ...] = ()
    """What was left out."""


def offered(names: Sequence[str] | None, runner: str, settings: AgentSettings) -> Offered:
    """The tools that a model named; BadArgumentError when it may not."""
    if runner == "messages":
        return Offered(_ours(names, settings))
    bracketed = [name for name in names or () if "(" in name and name not in settings.tools]
    if bracketed:
        raise BadArgumentError(
            f"{cut_name(bracketed[0])}: only the user can say which uses of a tool need no"
            " permission.",
            next="Give the tool's name alone. The user may allow this in their own jackline.toml:"
            f' agents.tools = ["{cut_name(bracketed[0])}"]',
        )
    tools = _theirs(names, runner, settings)
    if names and not tools:
        raise BadArgumentError(
            f"None of the tools named can be offered: {', '.join(map(cut_name, names[:5]))}.",
            next="Name others, or leave `tools` out. A server's tools are offered where the user"
            ' names it in their own jackline.toml, such as agents.tools = ["mcp__docs"]',
        )
    return Offered(tools)


def offered_to(definition: AgentDefinition, runner: str, settings: AgentSettings) -> Offered:
    """The tools that a definition names, as far as the user allows them."""
    names = definition.tools
    if runner == "messages" or names is None:
        return offered(names, runner, settings)
    bracketed = [name for name in names if "(" in name and name not in settings.tools]
    # Of a tool that keeps to the folder the name is enough. Of any other one the definition meant
    # some uses, which cannot be trusted to be harmless: it is not given all of them instead.
    plain = [_without_brackets(name) if name in bracketed else name for name in names]
    named = cut_name(next(iter(bracketed), ""))
    note = (
        f"The agent definition {cut_name(definition.name)} names {named},"
        " of which only the user can say that it needs no permission: the tool alone was offered."
        " The user may allow it in their own jackline.toml:"
        f' agents.tools = ["{named}"]'
    )
    tools = _theirs(plain, runner, settings)
    none_left = (
        f"None of the tools that the agent definition {cut_name(definition.name)} names can be"
        " offered: the agent has none. The user may allow a server's tools in their own"
        ' jackline.toml, such as agents.tools = ["mcp__docs"]'
    )
    notes = [note] if bracketed else []
    return Offered(tools, (*notes, none_left) if names and not tools else tuple(notes))


def _without_brackets(name: str) -> str:
    base = base_of(name)
    return base if base in FILE_TOOLS else offered_only(base)


def _theirs(names: Sequence[str] | None, runner: str, settings: AgentSettings) -> list[str] | None:
    if runner == "codex":
        # It brings its own tools in its own sandbox, which depends on whether one changes things.
        return None if names is None else [base_of(name) for name in names]
    if names is None and not settings.tools:
        return None
    allowed = (*USUAL_TOOLS, *settings.tools)
    # Those of the runner `messages` begin with a small letter.
    theirs = [name for name in allowed if name[:1].isupper() or name.startswith("mcp__")]
    wanted = theirs if names is None else names
    return list(dict.fromkeys(rule for name in wanted for rule in _rules(name, allowed)))


def _rules(name: str, allowed: Sequence[str]) -> list[str]:
    if name in allowed:
        return [name]
    base = base_of(name)
    if not _ONE_NAME.fullmatch(base):
        return []
    if base.startswith("mcp__"):
        server = "__".join(base.split("__")[:2])
        return [base] if server in allowed and name == base else []
    own = [each for each in allowed if base_of(each) == base]
    return own if own and name == base else [offered_only(base)]


def _ours(names: Sequence[str] | None, settings: AgentSettings) -> list[str] | None:
    allowed = (*USUAL_TOOLS, *settings.tools)
    refused = [name for name in names or () if name not in allowed]
    if refused:
        raise BadArgumentError(
            f"The runner messages may not use {', '.join(map(cut_name, refused[:5]))} for a model.",
            next="The user may allow it in their own jackline.toml:"
            f' agents.tools = ["{cut_name(refused[0])}"]',
        )
    return None if names is None else list(names)
