"""Decide which tools an agent is given that nobody watches.

Laws: (1) a model cannot give an agent more than the user allowed: in our configuration, or in the
client's own settings; (2) Claude Code is offered what was named, and asks its own settings about
the rest: a tool that is not allowed here comes with a rule that no call fits.
Not here: running tools (agents/, batches/).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jackline.errors import BadArgumentError
from jackline.mcp_server.settings import USUAL_TOOLS, AgentSettings

_NO_CALL = "nothing-by-jackline"
# One rule and no more, however the client takes a list of them apart: a name, and what is in one
# pair of brackets. Names come from models, and from definitions that a repository brings.
_ONE_RULE = re.compile(r"[A-Za-z][\w-]*(\([^()]*\))?")


def offered(names: Sequence[str] | None, runner: str, settings: AgentSettings) -> list[str] | None:
    """The tools for `flows.agent(tools=…)`; None leaves it to the runner and its own settings."""
    if runner == "messages":
        return _ours(names, settings)
    if runner != "claude-code" or (names is None and not settings.tools):
        return None
    allowed = (*USUAL_TOOLS, *settings.tools)
    # Those of the runner `messages` begin with a small letter.
    theirs = [name for name in allowed if name[:1].isupper() or name.startswith("mcp__")]
    wanted = theirs if names is None else names
    return list(dict.fromkeys(rule for name in wanted for rule in _rules(name, allowed)))


def _rules(name: str, allowed: Sequence[str]) -> list[str]:
    if not _ONE_RULE.fullmatch(name):
        return []
    base = name.partition("(")[0]
    if base in allowed or name in allowed:
        return [name]
    if base.startswith("mcp__"):
        server = "__".join(base.split("__")[:2])
        return [name] if server in allowed else []
    return [each for each in allowed if each.partition("(")[0] == base] or [f"{base}({_NO_CALL})"]


def _ours(names: Sequence[str] | None, settings: AgentSettings) -> list[str] | None:
    allowed = (*USUAL_TOOLS, *settings.tools)
    refused = [name for name in names or () if name not in allowed]
    if refused:
        raise BadArgumentError(
            f"The runner messages may not use {', '.join(refused)} for a model.",
            next="The user may allow it in their own jackline.toml:"
            f' agents.tools = ["{refused[0]}"]',
        )
    return None if names is None else list(names)
