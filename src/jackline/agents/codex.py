"""The runner `codex`: start the real Codex behind the gateway, and judge what it prints.

Rules: (1) neither prompts nor secrets are in the command line: they go through standard input, the
environment and files that are deleted afterwards; (2) all calls go to the gateway, whatever
provider the user has configured; (3) the sandbox limits what it may do to the disk, and nobody is
prompted; (4) the strict form of a schema accepts nothing that the schema refuses; a schema without
such a form is put into the prompt, and the answer is validated all the same; (5) each folder is
named as untrusted at each start, so that only the user's own settings are followed: another agent
may have written the folder's, and Codex takes a chosen sandbox for the user's word, writes that
into those settings for good, and starts the servers of the folder; (6) commands write to the
working folder and to a temporary folder of this agent alone, and nowhere if the user's own settings
lie in the working folder; (7) what it prints gives the same result however the bytes are cut; an
incomplete or unknown line is skipped; of the printed turns the last one counts; (8) a turn that did
not complete is no answer, and a completed turn without a last message is a truncation; only
`failures` interprets texts; (9) Codex's own rollout is the conversation, and is only read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from jackline.agents.process.child import folders_of_project, holds_own_files, start_files
from jackline.agents.process.program import (
    AnswerPart,
    Done,
    Failed,
    ProcessCost,
    ProcessExit,
    ProgramEvent,
    ProgramOutput,
    SavedSession,
    SessionOpened,
    StartCommand,
    StartRequest,
    Verdict,
)
from jackline.agents.process.runner import ProgramRunner
from jackline.agents.runner import TASK_VARIABLE, AgentTask, JsonObject
from jackline.agents.structured_answer import StructuredAnswer
from jackline.batches.processes import OrphanGuard, guard
from jackline.clock import Clock
from jackline.dialects.token_usage import TokenUsage
from jackline.failures import Kind, Observation, Where
from jackline.foreign_files import PROJECT_BYTES, SETTINGS_BYTES, toml_in
from jackline.foreign_repositories.guard import git_settings_for_clients
from jackline.outside_names import printable
from jackline.task_proof import named_task
from jackline.transcripts.records import decode
from jackline.transcripts.saved_conversation import (
    SavedConversation,
    TranscriptToolCall,
    read_codex_thread,
)
from jackline.transcripts.sources import ClientFolders

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
# The tools that change something, as Claude Code and Codex call them.
_CHANGING = frozenset(
    {"Bash", "Edit", "MultiEdit", "Write", "NotebookEdit", "exec_command", "apply_patch"}
)
_KEY = "OPENAI_API_KEY"
_TOKEN = "JACKLINE_GATEWAY_TOKEN"  # noqa: S105 -- the variable's name
_NAMED_TASK = "JACKLINE_NAMED_TASK"
_GIT_FOLDER = "GIT_DIR"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Waits and retries are the gateway's; these of the client's own bridge its restart.
_RETRIES = 2
_DAY_MS = 24 * 3600 * 1000
# What strict answers know of JSON Schema; of the rest only annotations may be left out.
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"$ref", "$defs", "description", "title", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
)
_ANNOTATIONS = frozenset({"default", "examples", "$schema", "$id", "$comment", "deprecated"})


class CodexRunner(ProgramRunner):
    """Runs agents with Codex.

    `sandbox` is what commands may do to the disk: by default change the working folder, or nothing
    if the user's own settings of Codex are stricter. An agent whose tools are named and none of
    which changes anything gets `read-only`.
    """

    name = usual_program = "codex"

    def __init__(
        self,
        base_url: str,
        *,
        program: str | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        tag: str | None = None,
        token: str | None = None,
        guard: OrphanGuard = guard,
    ) -> None:
        super().__init__(
            base_url,
            program=program,
            environment=environment,
            clock=clock,
            tag=tag,
            token=token,
            guard=guard,
        )
        self._sandbox = sandbox
        self._folders = ClientFolders.of_process(self._setup.environment)

    def task_prompt(self, task: AgentTask) -> str:
        """See `ProgramRunner`; Codex has no other way to get a system's prompt in secret."""
        parts = [task.system or "", task.prompt]
        if task.schema is not None:
            schema = StructuredAnswer(task.schema).input_schema
            if strict_schema(schema) is None:
                parts.append(
                    "When everything else is done, give as your last message nothing but one JSON "
                    "document that is valid by this JSON Schema, without a fence around it:\n"
                    + json.dumps(schema)
                )
        return "\n\n".join(part for part in parts if part)

    def reask_prompt(self, fault: str | None) -> str:
        """See `ProgramRunner`."""
        wrong = "is not one JSON document" if fault is None else f"is not as asked for: {fault}"
        return (
            f"Your last message {wrong}. Give the answer of the task again: nothing but the JSON "
            "document that the schema asks for, without a fence around it. Do none of the work "
            "again."
        )

    def why_not(self, task: AgentTask) -> str | None:
        """See `ProgramRunner`."""
        if task.tools:
            return (
                "Codex brings its own tools and cannot call Python functions: leave them out, give "
                'an MCP server, or use runner="messages"'
            )
        return None

    def unfollowed_notice(self, cwd: Path) -> str:
        """See `ProgramRunner`."""
        folders = (folder / ".codex" for folder in folders_of_project(cwd))
        found = next((folder for folder in folders if os.path.lexists(folder)), None)
        if found is None:
            return ""
        return (
            f"Codex follows only your own settings, not {printable(str(found))}: agents that work"
            " there may write them. What agents need of it belongs into your own config.toml of"
            " Codex, or into `mcp_servers` of the agent."
        )

    @contextmanager
    def start(self, task: AgentTask, request: StartRequest) -> Iterator[StartCommand]:
        """See `ProgramRunner`."""
        with start_files() as folder:
            environ = dict(self._setup.environment)
            environ |= git_settings_for_clients(environ)
            # A temporary folder of its own: what lies in the system's, others obey. Without the
            # last variable, here-documents of zsh are written to /tmp.
            own = folder / "tmp"
            own.mkdir()
            names = ("TEMP", "TMP") if os.name == "nt" else ("TMPDIR",)
            environ |= {**dict.fromkeys(names, str(own)), "TMPPREFIX": str(own / "zsh")}
            # Its own git, outside of the sandbox, sees no repository; that of its shell does.
            environ[_GIT_FOLDER] = str(folder / "no-repository")
            command = [self._setup.program, "exec"]
            if request.session_id is not None:
                command.append("resume")
            command += ["--json", "--skip-git-repo-check"]
            for name, value in self._settings(task, environ).items():
                command += ["-c", f"{name}={_toml(value)}"]
            if request.model is not None:
                command += ["--model", request.model]
            strict = None
            if task.schema is not None:
                strict = strict_schema(StructuredAnswer(task.schema).input_schema)
            if strict is not None:
                file = folder / "schema.json"
                file.write_text(json.dumps(strict), encoding="utf-8")
                command += ["--output-schema", str(file)]
            if request.session_id is not None:
                command.append(request.session_id)
            yield StartCommand([*command, "-"], environ)

    def _settings(self, task: AgentTask, environ: dict[str, str]) -> dict[str, object]:
        """Its settings for this task; what may be secret is added to the environment."""
        own = []
        for file in (_OF_THE_MACHINE, self._folders.codex / _NAME):
            with suppress(OSError, ValueError):  # what cannot be read, Codex cannot read either
                own.append(toml_in(file, SETTINGS_BYTES))
        # The variables that the user's own settings hide from commands.
        hidden = [
            name
            for document in own
            for name in _list(_table(document.get("shell_environment_policy")).get("exclude"))
        ]
        settings: dict[str, object] = {
            "model_provider": "jackline",
            "model_providers.jackline": self._provider(task, environ),
            "approval_policy": "never",
            "sandbox_mode": self._sandbox_mode(task),
            "sandbox_workspace_write.exclude_slash_tmp": True,
            "shell_environment_policy.exclude": [*hidden, _GIT_FOLDER],
        }
        folders = [str(folder) for folder in folders_of_project(task.cwd)]
        try:
            "".join(folders).encode()
        except UnicodeEncodeError:
            folders = []
        if folders:
            # As one value: in a dotted key it would not be found under its name.
            settings["projects"] = {name: {"trust_level": "untrusted"} for name in folders}
        else:
            # TOML cannot write such a name. Of a folder that it must not change, it writes nothing.
            settings["sandbox_mode"] = _STRICTEST
        servers: JsonObject = {}
        for document in own:
            # The user's own servers know for which agent they work: Codex passes no other variable.
            for name, server in _table(document.get("mcp_servers")).items():
                if "command" in _table(server):
                    variables = [*_list(_table(server).get("env_vars")), TASK_VARIABLE]
                    servers[name] = {"env_vars": variables}
        for name, wanted in task.mcp_servers.items():
            servers[name] = self._server(name, wanted, environ)
        if servers:
            # As one value: in a dotted key a name with dots would be taken apart.
            settings["mcp_servers"] = servers
        return settings

    def _provider(self, task: AgentTask, environ: dict[str, str]) -> JsonObject:
        provider: JsonObject = {
            "name": "Jackline",
            "base_url": f"{self._setup.base_url}/v1",
            "wire_api": "responses",
            "request_max_retries": _RETRIES,
            "stream_max_retries": _RETRIES,
            "stream_idle_timeout_ms": _DAY_MS,
        }
        if environ.get(_KEY):
            provider["env_key"] = _KEY
        elif (self._folders.codex / "auth.json").is_file():
            provider["requires_openai_auth"] = True
        if task.class_ is not None:
            provider["http_headers"] = {"x-jackline-class": task.class_}
        headers = {}
        for name, value in named_task(task.task_id):
            environ[_NAMED_TASK], headers[name] = value, _NAMED_TASK
        if self._setup.token is not None:
            environ[_TOKEN], headers["x-jackline-token"] = self._setup.token, _TOKEN
        if headers:
            provider["env_http_headers"] = headers
        return provider

    def _server(self, name: str, server: JsonObject, environ: dict[str, str]) -> JsonObject:
        """An MCP server as Codex wants it; what may be secret goes through the environment."""
        if "url" in server:
            headers = {}
            for number, (header, value) in enumerate(_table(server.get("headers")).items()):
                variable = f"JACKLINE_MCP_{re.sub('[^A-Z0-9]', '_', name.upper())}_{number}"
                environ[variable] = str(value)
                headers[str(header)] = variable
            return {"url": server["url"], "env_http_headers": headers}
        written: JsonObject = {key: server[key] for key in ("command", "args") if key in server}
        variables = {str(key): str(value) for key, value in _table(server.get("env")).items()}
        environ |= variables
        return {**written, "env_vars": [*variables, TASK_VARIABLE]}

    def _sandbox_mode(self, task: AgentTask) -> Sandbox:
        names = task.tool_names
        if names is not None and all(name.partition("(")[0] not in _CHANGING for name in names):
            return "read-only"
        if self._sandbox is not None:
            return self._sandbox
        # The usual one, or the strictest where the user's own settings want that, or lie there.
        if holds_own_files(task.cwd, self._setup.environment):
            return _STRICTEST
        folder = task.cwd.absolute()
        homes = [each / ".codex" for each in (folder, *folder.parents)]
        own = [_OF_THE_MACHINE, self._folders.codex / _NAME]
        may_change = all(self._may_change(each, folder, SETTINGS_BYTES) for each in own) and all(
            self._may_change(each / _NAME, folder, PROJECT_BYTES) for each in homes
        )
        return "workspace-write" if may_change else _STRICTEST

    def _may_change(self, file: Path, folder: Path, most: int) -> bool:
        """Whether the settings in this file let Codex change the folder without a question."""
        try:
            document = toml_in(file, most)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, ValueError):
            return False
        projects = _table(document.get("projects"))
        above = [_table(projects.get(str(each))) for each in (folder, *folder.parents)]
        if any(each.get("trust_level") == "untrusted" for each in above):
            return False
        tables: list[Mapping[str, object]] = [document]
        if "profile" in document:
            tables.append(_table(_table(document.get("profiles")).get(str(document["profile"]))))
        return all(
            table[name] in values
            for table in tables
            for name, values in _CHANGING_SETTINGS.items()
            if name in table
        )

    def output(self, task: AgentTask, session_id: str | None) -> CodexOutput:
        """See `ProgramRunner`."""
        before = None if session_id is None else self._saved(session_id)
        return CodexOutput(
            task.model or "", schema=task.schema is not None, before=before, read=self._saved
        )

    def saved_session(self, task: AgentTask, session_id: str | None) -> SavedSession:
        """See `ProgramRunner`."""
        path = None if session_id is None else self._folders.codex_rollout(session_id)
        if path is None:
            return SavedSession()
        saved = read_codex_thread(path)
        prompt = self.task_prompt(task).strip()
        holds = any(prompt in each for each in saved.prompts)
        return SavedSession(session_id, str(path), holds, saved)

    def _saved(self, thread_id: str) -> SavedConversation | None:
        path = self._folders.codex_rollout(thread_id)
        return None if path is None else read_codex_thread(path)


def strict_schema(schema: object) -> JsonObject | None:
    """The schema in the strict form; None when it has none."""
    if not isinstance(schema, dict) or not schema:
        # `true`, or an empty schema: anything goes, which strict answers do not know.
        return None
    written: JsonObject = {}
    for key, value in schema.items():
        if key in _ANNOTATIONS:
            continue
        inner = value
        if key in ("properties", "$defs"):
            inner = {name: strict_schema(each) for name, each in _table(value).items()}
        elif key == "anyOf" and isinstance(value, list):
            inner = [strict_schema(each) for each in value]
        elif key == "items":
            inner = [strict_schema(value)]
        parts = list(inner.values()) if isinstance(inner, dict) else inner
        if key not in _KNOWN or (inner is not value and None in _list(parts)):
            return None
        written[key] = inner[0] if key == "items" else inner
    if written.get("type") == "object" or "properties" in written:
        required = written.get("required")
        if not isinstance(required, list) or set(required) != set(_table(schema.get("properties"))):
            return None
        if written.setdefault("additionalProperties", False) is not False:
            return None
    return written


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _toml(value: object) -> str:
    """A value in TOML, whose numbers and lists are JSON's."""
    if isinstance(value, dict):
        inside = ", ".join(
            f"{name if _BARE_KEY.fullmatch(str(name)) else _toml(str(name))} = {_toml(each)}"
            for name, each in value.items()
        )
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # Like JSON's, but without halves of characters, and with DEL written out.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


_PROVIDER = "openai"
# What Codex does between two messages of its model; thoughts and plans call nothing.
_CALLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
)


class _Item(msgspec.Struct):
    id: str = ""
    type: str = ""
    text: str | None = None


class _TurnError(msgspec.Struct):
    message: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    thread_id: str | None = None
    item: _Item | None = None
    error: _TurnError | None = None
    message: str | None = None


_EVENTS = msgspec.json.Decoder(_Event)


class CodexOutput(ProgramOutput):
    """The state of one run, from what it has printed so far.

    `before` is what the thread held when the process was started; `read` reads a thread anew.
    """

    def __init__(
        self,
        model: str,
        *,
        schema: bool = False,
        before: SavedConversation | None = None,
        read: Callable[[str], SavedConversation | None] = lambda _thread: None,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._read_thread = read
        tokens = {} if before is None else before.tokens
        self.counted = tokens.get("", TokenUsage())
        self._model = model or (before and before.model) or ""
        self._thread_id: str | None = None
        self._is_completed = False
        self._failure: str | None = None
        """The text with which the last turn failed."""
        self._last_error: str | None = None
        self._errors = 0
        self._message: str | None = None
        """The last message of the last turn."""

    def _read(self, line: bytes) -> Sequence[ProgramEvent]:
        event = decode(_EVENTS, line)
        if event is None:
            return ()
        if event.type == "thread.started" and event.thread_id is not None:
            self._thread_id = event.thread_id
            return (SessionOpened(event.thread_id, self._model or None),)
        if event.type == "turn.started":
            self._is_completed, self._failure, self._message = False, None, None
        elif event.type == "turn.completed":
            self._is_completed = True
        elif event.type == "turn.failed":
            self._is_completed = False
            self._failure = (event.error and event.error.message) or self._last_error or ""
        elif event.type == "error":
            self._errors += 1
            self._last_error = event.message or self._last_error
        elif event.item is not None:
            item = event.item
            if event.type == "item.completed" and item.type == "agent_message":
                self._message = item.text or ""
                return (AnswerPart(item.id, self._model, TokenUsage(), self._message),)
            if event.type == "item.started" and item.type in _CALLS:
                calls = (TranscriptToolCall("", item.type, ""),)
                return (AnswerPart(item.id, self._model, TokenUsage(), calls=calls),)
        return ()

    def judge(self, ended: ProcessExit, *, now: datetime) -> Verdict:
        """The run's verdict."""
        text = self._failure
        if text is None and not self._is_completed and ended.exit_code not in (0, None):
            text = self._last_error
        if text is not None:
            seen = Observation(Where.TRANSCRIPT, _PROVIDER, text=text)
        elif not self._is_completed:
            return ended.broken("Codex", "before its turn had ended")
        elif ended.exit_code != 0:
            return ended.broken("Codex", "after its turn had ended")
        elif self._message:
            return Done(self._message, self._document(self._message) if self._schema else None)
        else:
            seen = Observation.of_stream(b"", provider=_PROVIDER)
        verdict = Failed.of(seen, now, attempts=max(1, self._errors))
        if verdict.failure.kind is Kind.NOT_A_FAILURE:
            return ended.broken("Codex", "with an error that it did not explain")
        return verdict

    def cost(self) -> ProcessCost:
        """What this process cost, by its rollout: it is printed only of turns that completed."""
        now = None if self._thread_id is None else self._read_thread(self._thread_id)
        if now is None:
            return ProcessCost()
        total = now.tokens.get("", TokenUsage())
        usage = total - (self.counted or TokenUsage())
        return ProcessCost(((now.model or self._model, usage),), turns=now.answers)

    def _document(self, text: str) -> object:
        """The JSON document that a message is; None when it is none."""
        bare = text.strip()
        if bare.startswith("```"):
            bare = bare.partition("\n")[2].rpartition("```")[0]
        try:
            document: object = json.loads(bare)
        except ValueError:
            return None
        return document
