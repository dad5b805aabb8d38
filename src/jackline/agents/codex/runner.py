"""The runner `codex`: start the real Codex behind the gateway and judge its run.

Rules: (1) neither prompts nor secrets are in the command line: they go through standard input, the
environment and files that are deleted afterwards; (2) all calls go to the gateway, whatever
provider the user has configured; (3) the sandbox limits what it may do to the disk, and nobody is
prompted; (4) the strict form of a schema accepts nothing that the schema refuses; a schema without
such a form is put into the prompt, and the answer is validated all the same; (5) a turn that did
not complete is no answer, and a completed turn without a last message is a truncation; (6) only
`failures` interprets texts; (7) each folder is named as untrusted at each start, so that only the
user's own settings are followed: another agent may have written the folder's, and Codex takes a
chosen sandbox for the user's word, writes that into those settings for good, and starts the servers
of the folder; (8) commands write to the working folder and to a temporary folder of this agent
alone, and nowhere if the user's own settings lie in the working folder.
Not here: the loop over processes (process/runner.py), validation (messages/structured_answer.py).
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from jackline.agents.codex.records import CodexOutput, Rollout, codex_home, read_rollout, rollout_of
from jackline.agents.outcome import TokenUsage
from jackline.agents.process.program import (
    Broken,
    Done,
    Failed,
    ProcessCost,
    ProcessExit,
    SavedSession,
    StartCommand,
    StartRequest,
    UnfollowedSettings,
    Verdict,
    exit_sentence,
    failure_sentence,
)
from jackline.agents.process.resume import beyond
from jackline.agents.process.runner import ParsedProgramOutput, ProgramRunner, found_program
from jackline.agents.process.start_files import holds_own_files, start_files
from jackline.agents.runner import TASK_VARIABLE, AgentTask, JsonObject
from jackline.agents.structured_answer import StructuredAnswer
from jackline.clock import Clock
from jackline.failures import Kind, Observation, Where, classify
from jackline.foreign_files import SETTINGS_BYTES, read_foreign
from jackline.foreign_repositories.guard import git_settings_for_clients
from jackline.outside_names import printable

Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]

_NAME = "config.toml"
_OF_THE_MACHINE = Path("/etc/codex") / _NAME
_STRICTEST: Sandbox = "read-only"
# By setting, the values with which Codex changes the working folder without a question.
_CHANGING_SETTINGS = {
    "sandbox_mode": ("workspace-write", "danger-full-access"),
    # The sandbox is left by asking alone; `untrusted` asks about almost every command.
    "approval_policy": ("on-request", "on-failure", "never"),
    "default_permissions": (":workspace", ":danger-no-sandbox", ":danger-full-access"),
}


def strictest_sandbox(usual: Sandbox, environment: Mapping[str, str], cwd: Path) -> Sandbox:
    """The usual sandbox, or the strictest where the user's own settings want that, or lie there."""
    if holds_own_files(cwd, environment):
        return _STRICTEST
    folder = cwd.absolute()
    homes = [each / ".codex" for each in (folder, *folder.parents)]
    files = [_OF_THE_MACHINE, codex_home(environment) / _NAME, *(each / _NAME for each in homes)]
    return usual if all(_may_change(file, folder) for file in files) else _STRICTEST


def _may_change(file: Path, folder: Path) -> bool:
    try:
        document = tomllib.loads(read_foreign(file, SETTINGS_BYTES).decode())
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError, RecursionError):
        return False
    projects = _table(document.get("projects"))
    above = [_table(projects.get(str(each))) for each in (folder, *folder.parents)]
    if any(each.get("trust_level") == "untrusted" for each in above):
        return False
    return all(
        table[name] in values
        for table in _tables(document)
        for name, values in _CHANGING_SETTINGS.items()
        if name in table
    )


def unfollowed_settings(cwd: Path) -> UnfollowedSettings:
    """What Codex would follow in the folder, and the folders that keep it from that."""
    try:
        folder = cwd.resolve()
        above = (folder, *folder.parents)
        top = next((each for each in above if os.path.lexists(each / ".git")), folder)
        inside = above[: above.index(top) + 1]
    except (OSError, RuntimeError, ValueError):
        return UnfollowedSettings()
    brought = next((each / ".codex" for each in inside if os.path.lexists(each / ".codex")), None)
    # Codex looks up the folder first, and only then its repository and that of a worktree.
    notice = "" if brought is None else _not_followed(brought)
    return UnfollowedSettings(notice, tuple(map(str, inside)))


def _not_followed(brought: Path) -> str:
    return (
        f"Codex follows only your own settings, not {printable(str(brought))}: agents that work"
        " there may write them. What agents need of it belongs into your own config.toml of Codex,"
        " or into `mcp_servers` of the agent."
    )


def _tables(document: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield document
    if "profile" in document:
        yield _table(_table(document.get("profiles")).get(str(document["profile"])))


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


# What strict answers know of JSON Schema; of the rest only annotations may be left out.
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"$ref", "$defs", "description", "title", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
)
_ANNOTATIONS = frozenset({"default", "examples", "$schema", "$id", "$comment", "deprecated"})
_MAPS = frozenset({"properties", "$defs"})


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """The schema in the strict form; None when it has none."""
    try:
        return _strict(schema)
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    pass


def _strict(schema: Mapping[str, object]) -> JsonObject:
    written: JsonObject = {}
    for key, value in schema.items():
        if key in _ANNOTATIONS:
            continue
        if key not in _KNOWN:
            raise _NotStrictError
        written[key] = _inner(key, value)
    if written.get("type") == "object" or "properties" in written:
        properties = written.get("properties")
        named = set(properties) if isinstance(properties, dict) else set()
        required = written.get("required")
        if not isinstance(required, list) or set(required) != named:
            raise _NotStrictError
        if written.setdefault("additionalProperties", False) is not False:
            raise _NotStrictError
    return written


def _inner(key: str, value: object) -> object:
    if key in _MAPS:
        given = value if isinstance(value, dict) else {}
        return {name: _subschema(each) for name, each in given.items()}
    if key == "items":
        return _subschema(value)
    if key == "anyOf":
        return [_subschema(each) for each in value] if isinstance(value, list) else value
    return value


def _subschema(value: object) -> JsonObject:
    if not isinstance(value, dict) or not value:
        # `true`, or an empty schema: anything goes, which strict answers do not know.
        raise _NotStrictError
    return _strict(value)


_KEY = "OPENAI_API_KEY"
_TOKEN = "JACKLINE_GATEWAY_TOKEN"  # noqa: S105 -- the variable's name
_TAG = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_GIT_FOLDER = "GIT_DIR"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Waits and retries are the gateway's; these of the client's own bridge its restart.
_RETRIES = 2
_DAY_MS = 24 * 3600 * 1000
# The tools that change something, as Claude Code and Codex call them.
_CHANGING = frozenset(
    {"Bash", "Edit", "MultiEdit", "Write", "NotebookEdit", "exec_command", "apply_patch"}
)


@dataclass(frozen=True, slots=True)
class CodexSetup:
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
def start_for(
    place: CodexSetup, task: AgentTask, order: StartRequest, unfollowed: UnfollowedSettings
) -> Iterator[StartCommand]:
    """How to start it for this task; its files are there for as long as the block runs."""
    with start_files() as folder:
        environ = dict(place.environment)
        environ |= git_settings_for_clients(environ) | _temporary_folder(folder)
        # Its own git, outside of the sandbox, sees no repository: that of an agent's shell does.
        environ[_GIT_FOLDER] = str(folder / "no-repository")
        command = [place.program, "exec"]
        if order.session_id is not None:
            command.append("resume")
        command += ["--json", "--skip-git-repo-check"]
        settings = _settings(place, task, environ) | _untrusted(unfollowed)
        servers = _marked_servers(environ)
        servers |= {name: _server(name, given, environ) for name, given in task.mcp_servers.items()}
        if servers:
            # As one value: in a dotted key a name with dots would be taken apart.
            settings["mcp_servers"] = servers
        for name, value in settings.items():
            command += ["-c", f"{name}={_toml(value)}"]
        if order.model is not None:
            command += ["--model", order.model]
        strict = None if task.schema is None else strict_schema(_asked(task.schema))
        if strict is not None:
            file = folder / "schema.json"
            file.write_text(json.dumps(strict), encoding="utf-8")
            command += ["--output-schema", str(file)]
        if order.session_id is not None:
            command.append(order.session_id)
        yield StartCommand([*command, "-"], environ)


def _temporary_folder(folder: Path) -> dict[str, str]:
    """Variables for a temporary folder of its own: what lies in the system's, others obey."""
    own = folder / "tmp"
    own.mkdir()
    names = ("TEMP", "TMP") if os.name == "nt" else ("TMPDIR",)
    # Without the last one, here-documents of zsh are written to /tmp.
    return {**dict.fromkeys(names, str(own)), "TMPPREFIX": str(own / "zsh")}


def _settings(place: CodexSetup, task: AgentTask, environ: dict[str, str]) -> dict[str, object]:
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
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "shell_environment_policy.exclude": [*_left_out(environ), _GIT_FOLDER],
    }


def _left_out(environ: Mapping[str, str]) -> list[object]:
    """The variables that the user's own settings keep from commands."""
    found: list[object] = []
    for document in _own_settings(environ):
        names = _table(document.get("shell_environment_policy")).get("exclude")
        found += names if isinstance(names, list) else []
    return found


def _own_settings(environ: Mapping[str, str]) -> Iterator[Mapping[str, object]]:
    """The user's own settings of Codex; what cannot be read, Codex cannot read either."""
    for file in (_OF_THE_MACHINE, codex_home(environ) / _NAME):
        try:
            yield tomllib.loads(read_foreign(file, SETTINGS_BYTES).decode())
        except (OSError, ValueError, RecursionError):
            continue


def _untrusted(unfollowed: UnfollowedSettings) -> dict[str, object]:
    """What keeps Codex from following the folder."""
    try:
        "".join(unfollowed.untrusted).encode()
    except UnicodeEncodeError:
        # TOML has no word for such a name. Of a folder that it must not change, it writes nothing.
        return {"sandbox_mode": _STRICTEST}
    # As one value: in a dotted key it would not be found under its name.
    levels = {name: {"trust_level": "untrusted"} for name in unfollowed.untrusted}
    return {"projects": levels} if levels else {"sandbox_mode": _STRICTEST}


def _sandbox(place: CodexSetup, task: AgentTask) -> Sandbox:
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
    return {**written, "env_vars": [*variables, TASK_VARIABLE]}


def _marked_servers(environ: Mapping[str, str]) -> dict[str, JsonObject]:
    """The user's own servers, told for which agent they work: Codex hands on no other variable."""
    marked: dict[str, JsonObject] = {}
    for document in _own_settings(environ):
        for name, server in _table(document.get("mcp_servers")).items():
            named = _table(server).get("env_vars")
            if "command" in _table(server):
                variables = [*(named if isinstance(named, list) else ()), TASK_VARIABLE]
                marked[name] = {"env_vars": variables}
    return marked


def _texts(value: object) -> list[tuple[str, str]]:
    given = value if isinstance(value, dict) else {}
    return [(str(name), str(each)) for name, each in given.items()]


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A string in TOML: like JSON's, but without halves of characters, and with DEL written out."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: object) -> str:
    """A value in TOML, whose strings, numbers and lists are JSON's."""
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(str(name))} = {_toml(each)}" for name, each in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


_PROVIDER = "openai"


def asks_again(fault: str | None) -> str:
    """What to say to an agent that owes its structured answer, or gave one with a fault."""
    wrong = "is not one JSON document" if fault is None else f"is not as asked for: {fault}"
    return (
        f"Your last message {wrong}. Give the answer of the task again: nothing but the JSON "
        "document that the schema asks for, without a fence around it. Do none of the work again."
    )


def judge(printed: CodexOutput, ended: ProcessExit, *, schema: bool, now: datetime) -> Verdict:
    """What the run came to."""
    words = printed.failed
    if words is None and not printed.completed and ended.exit_code not in (0, None):
        words = printed.last_error
    if words is not None:
        return _failed(Observation(Where.TRANSCRIPT, _PROVIDER, text=words), printed, ended, now)
    if not printed.completed:
        return Broken(_exit(ended, "before its turn had ended"))
    if ended.exit_code != 0:
        return Broken(_exit(ended, "after its turn had ended"))
    if not printed.last_words:
        return _failed(Observation.of_stream(b"", provider=_PROVIDER), printed, ended, now)
    return Done(printed.last_words, _document(printed.last_words) if schema else None)


def _failed(seen: Observation, printed: CodexOutput, ended: ProcessExit, now: datetime) -> Verdict:
    failure = classify(seen, now=now)
    if failure.kind is Kind.NOT_A_FAILURE:
        return Broken(_exit(ended, "with an error that it did not explain"))
    return Failed(failure, failure_sentence(failure, seen.text), attempts=max(1, printed.errors))


def _document(text: str) -> object:
    """The JSON document that a message is; None when it is none."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.partition("\n")[2].rpartition("```")[0]
    try:
        document: object = json.loads(bare)
    except ValueError:
        return None
    return document


def _exit(ended: ProcessExit, when: str) -> str:
    return exit_sentence("Codex", ended, when)


class CodexRunner(ProgramRunner):
    """Carries agents with Codex.

    `base_url` is a gateway's, `token` what it asks of its clients, `tag` the name under which it
    counts them (a run's id). `environment` is what Codex is given: its credentials and its home are
    found there. `sandbox` is what commands may do to the disk: by default change the working
    folder, or nothing if the user's own settings of Codex are stricter. An agent whose tools are
    named and none of which changes anything gets `read-only`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        program: str = "codex",
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        tag: str | None = None,
        token: str | None = None,
    ) -> None:
        found, environ = found_program(program, environment)
        super().__init__(Codex(CodexSetup(base_url, found, environ, sandbox, tag, token)), clock)


class Codex:
    """Codex as a program that can be driven."""

    name = "codex"

    def __init__(self, place: CodexSetup) -> None:
        self._place = place

    def task_words(self, task: AgentTask) -> str:
        """What it is told as its task."""
        return task_words(task)

    def asks_again(self, fault: str | None) -> str:
        """What to say to an agent that owes its structured answer."""
        return asks_again(fault)

    def why_not(self, task: AgentTask) -> str | None:
        """Why it cannot do this task at all."""
        if task.tools:
            return (
                "Codex brings its own tools and cannot call Python functions: leave them out, give "
                'an MCP server, or use runner="messages"'
            )
        return None

    def unfollowed(self, cwd: Path) -> UnfollowedSettings:
        """What it does not follow in this folder."""
        return unfollowed_settings(cwd)

    def start(
        self, task: AgentTask, order: StartRequest, unfollowed: UnfollowedSettings
    ) -> AbstractContextManager[StartCommand]:
        """How to start it."""
        return start_for(self._place, task, order, unfollowed)

    def ear(self, task: AgentTask, session_id: str | None) -> _Ear:
        """Somebody to hear the next process."""
        before = Rollout() if session_id is None else self._rollout(session_id)
        return _Ear(task, before or Rollout(), self._rollout)

    def look_back(self, task: AgentTask, session_id: str | None) -> SavedSession:
        """What its rollout holds of this thread."""
        path = None if session_id is None else rollout_of(session_id, self._place.environment)
        if path is None:
            return SavedSession()
        kept = read_rollout(path)
        words = task_words(task).strip()
        holds = any(words in prompt for prompt in kept.prompts)
        return SavedSession(
            session_id,
            str(path),
            holds,
            lost=tuple(kept.calls.values()),
            prompts=tuple(kept.prompts),
        )

    def _rollout(self, thread_id: str) -> Rollout | None:
        path = rollout_of(thread_id, self._place.environment)
        return None if path is None else read_rollout(path)


class _Ear(ParsedProgramOutput[CodexOutput]):
    """Hears one process of Codex."""

    def __init__(
        self, task: AgentTask, before: Rollout, read: Callable[[str], Rollout | None]
    ) -> None:
        printed = CodexOutput(task.model or before.model or "")
        super().__init__(printed, judge, schema=task.schema is not None)
        self._before = before
        self._read = read

    @property
    def counted(self) -> TokenUsage:
        """What the thread had cost before."""
        return self._before.usage

    def spent(self) -> ProcessCost:
        """What this process cost, by its rollout: it is printed only of turns that completed."""
        printed = self._printed
        now = None if printed.thread_id is None else self._read(printed.thread_id)
        if now is None:
            return ProcessCost()
        usage = beyond(now.usage, self._before.usage)
        return ProcessCost(((now.model or printed.model, usage),), turns=now.answers)
