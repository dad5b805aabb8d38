"""Write the command line and the environment with which Codex carries an agent.

Laws: (1) neither prompts nor secrets stand in the command line: they go through its input, its
environment, and files that are gone afterwards; (2) all calls go to the gateway, whatever provider
the user has configured; (3) what it may do to the disk is told by its sandbox, never by asking, and
is no more than the user's own settings of Codex allow.
Not here: reading those (own_settings.py), running it (process/).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from jackline.agents.codex.own_settings import Sandbox, strictest_sandbox
from jackline.agents.codex.rollout import codex_home
from jackline.agents.codex.strict_schema import strict_schema
from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.process.program import Order, Start
from jackline.agents.task import AgentTask, JsonObject

_KEY = "OPENAI_API_KEY"
_TOKEN = "JACKLINE_GATEWAY_TOKEN"  # noqa: S105 -- the variable's name
_TAG = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Waits and retries are the gateway's; these of the client's own bridge its restart.
_RETRIES = 2
_DAY_MS = 24 * 3600 * 1000
# The tools that change something, as Claude Code and Codex call them.
_CHANGING = frozenset(
    {"Bash", "Edit", "MultiEdit", "Write", "NotebookEdit", "exec_command", "apply_patch"}
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where Codex is, which gateway it calls, and what environment it is given."""

    base_url: str
    program: str
    environment: Mapping[str, str] = field(repr=False)
    sandbox: Sandbox | None = None
    """None: the working folder may be changed, unless the user's own settings are stricter."""
    tag: str | None = None
    token: str | None = field(default=None, repr=False)


def task_words(task: AgentTask) -> str:
    """The task as Codex is told it: it has no other way to be given a system's words in secret."""
    parts = [task.system or "", task.prompt]
    if task.schema is not None and strict_schema(_asked(task.schema)) is None:
        schema = json.dumps(_asked(task.schema))
        parts.append(
            "When everything else is done, give as your last message nothing but one JSON document "
            f"that is valid by this JSON Schema, without a fence around it:\n{schema}"
        )
    return "\n\n".join(part for part in parts if part)


def _asked(schema: JsonObject) -> JsonObject:
    """What is asked for: an object, which holds the value where the schema is for none."""
    asked = StructuredAnswer(schema).tool["input_schema"]
    return asked if isinstance(asked, dict) else {}


@contextmanager
def start_for(place: Place, task: AgentTask, order: Order) -> Iterator[Start]:
    """How to start it for this task; its files are there for as long as the block runs."""
    with TemporaryDirectory(prefix="jackline-agent-", ignore_cleanup_errors=True) as folder:
        environ = dict(place.environment)
        command = [place.program, "exec"]
        if order.session_id is not None:
            command.append("resume")
        command += ["--json", "--skip-git-repo-check"]
        settings = _settings(place, task, environ)
        for server, given in task.mcp_servers.items():
            settings[f"mcp_servers.{_key(server)}"] = _server(server, given, environ)
        for name, value in settings.items():
            command += ["-c", f"{name}={_toml(value)}"]
        if order.model is not None:
            command += ["--model", order.model]
        strict = None if task.schema is None else strict_schema(_asked(task.schema))
        if strict is not None:
            file = Path(folder) / "schema.json"
            file.write_text(json.dumps(strict), encoding="utf-8")
            command += ["--output-schema", str(file)]
        if order.session_id is not None:
            command.append(order.session_id)
        yield Start([*command, "-"], environ)


def _settings(place: Place, task: AgentTask, environ: dict[str, str]) -> dict[str, object]:
    tagged = place.tag is not None and _TAG.fullmatch(place.tag)
    provider: JsonObject = {
        "name": "Jackline",
        "base_url": place.base_url.rstrip("/") + (f"/t/{place.tag}/v1" if tagged else "/v1"),
        "wire_api": "responses",
        "request_max_retries": _RETRIES,
        "stream_max_retries": _RETRIES,
        "stream_idle_timeout_ms": _DAY_MS,
    }
    if environ.get(_KEY):
        provider["env_key"] = _KEY
    elif (codex_home(environ) / "auth.json").is_file():
        provider["requires_openai_auth"] = True
    by_class = {} if task.class_ is None else {"x-jackline-class": task.class_}
    provider["http_headers"] = {"x-jackline-task": task.task_id, **by_class}
    if place.token is not None:
        environ[_TOKEN] = place.token
        provider["env_http_headers"] = {"x-jackline-token": _TOKEN}
    names = task.tool_names
    may_change = names is None or any(name.partition("(")[0] in _CHANGING for name in names)
    return {
        "model_provider": "jackline",
        "model_providers.jackline": provider,
        "approval_policy": "never",
        "sandbox_mode": _sandbox(place, task) if may_change else "read-only",
    }


def _sandbox(place: Place, task: AgentTask) -> Sandbox:
    if place.sandbox is not None:
        return place.sandbox
    return strictest_sandbox("workspace-write", place.environment, task.cwd)


def _server(name: str, given: JsonObject, environ: dict[str, str]) -> JsonObject:
    """An MCP server in Codex's words; what may be secret goes through the environment."""
    if "url" in given:
        sent = {}
        for number, (header, value) in enumerate(_texts(given.get("headers"))):
            variable = f"JACKLINE_MCP_{re.sub('[^A-Z0-9]', '_', name.upper())}_{number}"
            environ[variable] = value
            sent[header] = variable
        return {"url": given["url"], "env_http_headers": sent}
    written: JsonObject = {}
    for key in ("command", "args"):
        if key in given:
            written[key] = given[key]
    variables = dict(_texts(given.get("env")))
    environ |= variables
    return {**written, "env_vars": list(variables)}


def _texts(value: object) -> list[tuple[str, str]]:
    given = value if isinstance(value, dict) else {}
    return [(str(name), str(each)) for name, each in given.items()]


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name)


def _toml(value: object) -> str:
    """A value in TOML, whose strings, numbers and lists are JSON's."""
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(str(name))} = {_toml(each)}" for name, each in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return json.dumps(value)
