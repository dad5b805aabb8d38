"""Write the command line and the environment with which Claude Code carries an agent.

Laws: (1) neither prompts nor secrets stand in the command line: they go through its input and
through files that are gone afterwards; (2) all calls go to the gateway; (3) where tools are named
no other one is offered, and none may leave the folder by its mere name (tool_rules.py); (4) the
model is always named, or a resumed session would lose its context options.
Not here: the variables that waiting needs (environment.py), running it (process/).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from jackline.agents.claude_code.environment import CUSTOM_HEADERS, client_environment
from jackline.agents.claude_code.tool_rules import allowed_rules, offered_names
from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.process.program import Order, Start
from jackline.agents.task import AgentTask

# Waits and retries are the gateway's; this many of the client's own bridge its restart.
_RETRIES = "CLAUDE_CODE_MAX_RETRIES", "4"
# By these a Claude Code would take itself for a part of the one that it was started from.
_OF_A_PARENT = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
)
_TAG = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_CLASS_HEADER = "x-jackline-class"
_TASK_HEADER = "x-jackline-task"


@dataclass(frozen=True, slots=True)
class Place:
    """Where Claude Code is, which gateway it calls, and what environment it is given."""

    base_url: str
    program: str
    environment: Mapping[str, str] = field(repr=False)
    tag: str | None = None
    token: str | None = field(default=None, repr=False)


@contextmanager
def start_for(place: Place, task: AgentTask, order: Order, new_session: str) -> Iterator[Start]:
    """How to start it for this task; its files are there for as long as the block runs.

    `new_session` is the id of the session that is begun where the order names none.
    """
    with TemporaryDirectory(prefix="jackline-agent-", ignore_cleanup_errors=True) as folder:
        command = [
            *(place.program, "-p", "--output-format", "stream-json", "--verbose"),
            *_session(order, new_session),
            *_limits(order),
            *_tools(task),
            *_files(task, Path(folder)),
        ]
        if order.model is not None:
            command += ["--model", order.model]
        if task.schema is not None:
            given_by = StructuredAnswer(task.schema).tool["input_schema"]
            command += ["--json-schema", json.dumps(given_by)]
        yield Start(command, _environment(place, task))


def _session(order: Order, new_session: str) -> list[str]:
    if order.session_id is not None:
        return ["--resume", order.session_id]
    return ["--session-id", new_session]


def _limits(order: Order) -> list[str]:
    limits = []
    if order.turns_left is not None:
        limits += ["--max-turns", str(order.turns_left)]
    if order.dollars_left is not None:
        limits += ["--max-budget-usd", f"{order.dollars_left:.6f}"]
    return limits


def _tools(task: AgentTask) -> list[str]:
    """Which tools it may use without asking: there is nobody to ask."""
    # Whoever gave it these servers meant them to be used.
    named = [*(task.tool_names or ()), *(f"mcp__{server}" for server in task.mcp_servers)]
    rules = allowed_rules(named)
    allowed = ["--allowedTools", ",".join(rules)] if rules else []
    if task.tool_names is None:
        # Edits in its folder; for everything else the user's own settings decide.
        return ["--permission-mode", "acceptEdits", *allowed]
    offered = ",".join(offered_names(named))
    return ["--permission-mode", "dontAsk", "--tools", offered, *allowed]


def _files(task: AgentTask, folder: Path) -> list[str]:
    options = []
    if task.system is not None:
        system = folder / "system.txt"
        system.write_text(task.system, encoding="utf-8")
        options += ["--append-system-prompt-file", str(system)]
    if task.mcp_servers:
        servers = folder / "mcp.json"
        servers.write_text(json.dumps({"mcpServers": dict(task.mcp_servers)}), encoding="utf-8")
        options += ["--mcp-config", str(servers), "--strict-mcp-config"]
    return options


def _environment(place: Place, task: AgentTask) -> dict[str, str]:
    environ = {name: text for name, text in place.environment.items() if name not in _OF_A_PARENT}
    tagged = place.tag is not None and _TAG.fullmatch(place.tag)
    base = place.base_url.rstrip("/") + (f"/t/{place.tag}" if tagged else "")
    chosen = client_environment(base, afk=False, environ=environ, token=place.token)
    environ = {_RETRIES[0]: _RETRIES[1], **environ, **chosen}
    known = environ.get(CUSTOM_HEADERS, "")
    # We may ourselves be run by an agent of a flow, and inherit the name of its task.
    lines = [line for line in known.splitlines() if not line.startswith(f"{_TASK_HEADER}:")]
    lines.append(f"{_TASK_HEADER}: {task.task_id}")
    if task.class_ is not None:
        lines.append(f"{_CLASS_HEADER}: {task.class_}")
    environ[CUSTOM_HEADERS] = "\n".join(lines)
    return environ
