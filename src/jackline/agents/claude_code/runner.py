"""The runner `claude-code`: start the real Claude Code behind the gateway and judge its run.

Rules: (1) neither prompts nor secrets are in the command line: they go through standard input and
through files that are deleted afterwards; (2) all calls go to the gateway; (3) tools are allowed by
name, and where names are set no other tool is offered; (4) the model is always named, or a resumed
session would lose its context options; (5) without a result there is no completion; `is_error` and
a synthetic error decide, never `subtype`; (6) a "success" without a stop reason, without the answer
that the schema requires, or with lost agents is a failure; (7) only `failures` interprets texts;
(8) only the user's own settings are followed, never those of a folder, and git starts nothing that
a look at the folder could start.
Not here: the variables for waiting (environment.py), the loop over processes (process/runner.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid5

from jackline.agents.claude_code.environment import CUSTOM_HEADERS, client_environment
from jackline.agents.claude_code.folder_settings import (
    denying_rules,
    notes_of,
    unfollowed_settings,
)
from jackline.agents.claude_code.printed_output import ClaudeOutput, Result
from jackline.agents.claude_code.tool_rules import allowed_rules, offered_names
from jackline.agents.claude_code.transcript import CostState, read_session, transcript_of
from jackline.agents.outcome import Ending, TokenUsage
from jackline.agents.process.program import (
    Broken,
    Done,
    Failed,
    Incomplete,
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
from jackline.agents.process.start_files import start_files
from jackline.agents.runner import AgentTask
from jackline.agents.structured_answer import StructuredAnswer
from jackline.clock import Clock
from jackline.failures import Failure, Json, Kind, Observation, Where, classify
from jackline.foreign_repositories.guard import git_settings_for_clients

# Waits and retries are the gateway's; this many of the client's own bridge its restart.
_RETRIES = "CLAUDE_CODE_MAX_RETRIES", "4"
# Else 2.1.197 asks git for the state of the folder, which runs filters that the repository names.
_NO_GIT_STATE = "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS", "1"
# By these a Claude Code would take itself for a part of the one that it was started from.
_OF_A_PARENT = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
)
# With these neither settings, hooks, servers, agents, skills nor CLAUDE.md of a folder are read.
_OWN_SETTINGS = ("--setting-sources", "user")
_TAG = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_CLASS_HEADER = "x-jackline-class"
_TASK_HEADER = "x-jackline-task"


@dataclass(frozen=True, slots=True)
class ClaudeCodeSetup:
    """Where Claude Code is, which gateway it calls, and what environment it is given."""

    base_url: str
    program: str
    environment: Mapping[str, str] = field(repr=False)
    tag: str | None = None
    token: str | None = field(default=None, repr=False)


@contextmanager
def start_for(
    place: ClaudeCodeSetup,
    task: AgentTask,
    order: StartRequest,
    new_session: str,
) -> Iterator[StartCommand]:
    """How to start it for this task; its files are there for as long as the block runs.

    `new_session` is the id of the session that is begun where the order names none.
    """
    with start_files() as folder:
        command = [
            *(place.program, "-p", "--output-format", "stream-json", "--verbose"),
            *_session(order, new_session),
            *_settings(task),
            *_limits(order),
            *_tools(task),
            *_files(task, folder),
        ]
        if order.model is not None:
            command += ["--model", order.model]
        if task.schema is not None:
            given_by = StructuredAnswer(task.schema).tool["input_schema"]
            command += ["--json-schema", json.dumps(given_by)]
        environ = _environment(place, task)
        yield StartCommand(command, environ | git_settings_for_clients(environ))


def _session(order: StartRequest, new_session: str) -> list[str]:
    if order.session_id is not None:
        return ["--resume", order.session_id]
    return ["--session-id", new_session]


def _settings(task: AgentTask) -> list[str]:
    rules = denying_rules(task.cwd)
    denied = ["--settings", json.dumps({"permissions": rules})] if rules else []
    return [*_OWN_SETTINGS, *denied]


def _limits(order: StartRequest) -> list[str]:
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
    words = "\n\n".join(text for text in (task.system, notes_of(task.cwd)) if text)
    if words:
        system = folder / "system.txt"
        system.write_text(words, encoding="utf-8")
        options += ["--append-system-prompt-file", str(system)]
    if task.mcp_servers:
        servers = folder / "mcp.json"
        servers.write_text(json.dumps({"mcpServers": dict(task.mcp_servers)}), encoding="utf-8")
        options += ["--mcp-config", str(servers), "--strict-mcp-config"]
    return options


def _environment(place: ClaudeCodeSetup, task: AgentTask) -> dict[str, str]:
    environ = {name: text for name, text in place.environment.items() if name not in _OF_A_PARENT}
    tagged = place.tag is not None and _TAG.fullmatch(place.tag)
    base = place.base_url.rstrip("/") + (f"/t/{place.tag}" if tagged else "")
    chosen = client_environment(base, afk=False, environ=environ, token=place.token)
    environ = {_RETRIES[0]: _RETRIES[1], **environ, **chosen, _NO_GIT_STATE[0]: _NO_GIT_STATE[1]}
    known = environ.get(CUSTOM_HEADERS, "")
    # We may ourselves be run by an agent of a flow, and inherit the name of its task.
    lines = [line for line in known.splitlines() if not line.startswith(f"{_TASK_HEADER}:")]
    lines.append(f"{_TASK_HEADER}: {task.task_id}")
    if task.class_ is not None:
        lines.append(f"{_CLASS_HEADER}: {task.class_}")
    environ[CUSTOM_HEADERS] = "\n".join(lines)
    return environ


_PROVIDER = "anthropic"
_OWED = "it gave no structured answer"


def asks_again(fault: str | None) -> str:
    """What to say to an agent that owes its structured answer, or gave one with a fault."""
    if fault is None:
        return (
            "Your work has ended without its answer. Call the tool StructuredOutput now, with the "
            "answer of the task in the form that its schema asks for. Do none of the work again."
        )
    return (
        f"The answer that you gave is not what its schema asks for: {fault}. Call the tool "
        "StructuredOutput again with the corrected answer. Do none of the work again."
    )


def judge(printed: ClaudeOutput, ended: ProcessExit, *, schema: bool, now: datetime) -> Verdict:
    """What the run came to."""
    result = printed.result
    if result is None:
        return _without_result(printed, ended, now)
    if result.is_error or printed.error is not None:
        return _failed(printed, result, ended, now)
    if ended.exit_code != 0:
        return Broken(_exit(ended, "after its result"))
    if schema and result.given is None:
        return Incomplete(asks_again(None), _OWED)
    if not schema and result.stop_reason == "refusal":
        body: Json = {"message": {"stop_reason": result.stop_reason}}
        return _failure(printed, Observation(Where.TRANSCRIPT, _PROVIDER, 200, {}, body), now)
    if not schema and result.stop_reason in (None, "max_tokens"):
        # The client takes a stream that ended in order for whole, also when its end is missing.
        return _failure(printed, Observation.of_stream(b"", provider=_PROVIDER), now)
    lost = {**printed.lost, **printed.agents}
    if lost:
        return _lost(lost)
    return Done(result.text, result.given)


def _without_result(printed: ClaudeOutput, ended: ProcessExit, now: datetime) -> Verdict:
    if printed.error is None:
        return Broken(_exit(ended, "before it gave a result"))
    return _failure(printed, _observed(printed, None, None), now)


def _failed(printed: ClaudeOutput, result: Result, ended: ProcessExit, now: datetime) -> Verdict:
    if result.is_error and result.subtype == "error_max_structured_output_retries":
        return Incomplete(asks_again(None), _OWED, raw=printed.offered)
    verdict = _failure(printed, _observed(printed, result, result.status), now)
    if verdict.failure.kind is Kind.NOT_A_FAILURE:
        return Broken(_exit(ended, "with an error that it did not explain"))
    return verdict


def _observed(printed: ClaudeOutput, result: Result | None, status: int | None) -> Observation:
    error = printed.error
    text = error.text if error is not None else "" if result is None else result.text
    body: Json = None
    if error is None and result is not None:
        body = {"type": "result", "subtype": result.subtype, "is_error": True}
    elif error is not None and not text:
        body = {"error": error.tag}
    return Observation(Where.TRANSCRIPT, _PROVIDER, status, _headers(printed), body, text or None)


def _headers(printed: ClaudeOutput) -> Mapping[str, str]:
    """The window that refused, if it did; one that only warns is not why this run ended."""
    quota = printed.quota
    return quota.as_headers() if quota is not None and quota.status == "rejected" else {}


def _failure(printed: ClaudeOutput, seen: Observation, now: datetime) -> Failed:
    failure: Failure = classify(seen, now=now)
    error = printed.error
    return Failed(
        failure,
        failure_sentence(failure, seen.text),
        seen.status,
        (error.request_id if error is not None else None) or printed.last_request_id,
        printed.retries + 1,
    )


def _lost(agents: Mapping[str, str]) -> Incomplete:
    listed = ", ".join(sorted(agents))
    return Incomplete(
        "Agents that you had started in the background were stopped before they had finished, and "
        f"their results are lost: {listed}. Look at what they have done, finish their work (an "
        "agent can be gone on with by SendMessage to its id), and then give your answer again.",
        f"{len(agents)} of its own agents were stopped before they had finished",
        Ending.TOOL_ERROR,
    )


def _exit(ended: ProcessExit, when: str) -> str:
    return exit_sentence("Claude Code", ended, when)


class ClaudeCodeRunner(ProgramRunner):
    """Carries agents with Claude Code.

    `base_url` is a gateway's, `token` what it asks of its clients, `tag` the name under which it
    counts them (a run's id). `environment` is what Claude Code is given beside what the gateway
    needs: its credentials and its home are found there.
    """

    def __init__(
        self,
        base_url: str,
        *,
        program: str = "claude",
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        tag: str | None = None,
        token: str | None = None,
    ) -> None:
        found, environ = found_program(program, environment)
        place = ClaudeCodeSetup(base_url, found, environ, tag, token)
        super().__init__(ClaudeCode(place), clock)


class ClaudeCode:
    """Claude Code as a program that can be driven."""

    name = "claude-code"

    def __init__(self, place: ClaudeCodeSetup) -> None:
        self._place = place

    def task_words(self, task: AgentTask) -> str:
        """What it is told as its task."""
        return task.prompt

    def asks_again(self, fault: str | None) -> str:
        """What to say to an agent that owes its structured answer."""
        return asks_again(fault)

    def why_not(self, task: AgentTask) -> str | None:
        """Why it cannot do this task at all."""
        if task.tools:
            return (
                "Claude Code brings its own tools and cannot call Python functions: name its tools "
                'as strings ("Read", "Bash(git *)"), give an MCP server, or use runner="messages"'
            )
        return None

    def unfollowed(self, cwd: Path) -> UnfollowedSettings:
        """What it does not follow in this folder."""
        return unfollowed_settings(cwd, self._place.environment)

    def start(
        self,
        task: AgentTask,
        order: StartRequest,
        unfollowed: UnfollowedSettings,  # noqa: ARG002
    ) -> AbstractContextManager[StartCommand]:
        """How to start it."""
        new_session = task.session_id
        if order.session_id is None and self._transcript(new_session) is not None:
            # Cut off before anything was in it: it can neither be resumed nor begun again.
            new_session = str(uuid5(UUID(new_session), "again"))
        return start_for(self._place, task, order, new_session)

    def ear(self, task: AgentTask, session_id: str | None) -> _Ear:
        """Somebody to hear the next process."""
        before = CostState()
        path = None if session_id is None else self._transcript(session_id)
        if path is not None:
            before = read_session(path).cost
        return _Ear(before, schema=task.schema is not None)

    def look_back(self, task: AgentTask, session_id: str | None) -> SavedSession:
        """What its transcript holds of this session."""
        named = session_id or task.session_id
        path = self._transcript(named)
        if path is None:
            return SavedSession()
        kept = read_session(path)
        if not kept.prompts and not kept.answers:
            return SavedSession(transcript=str(path))
        holds = any(task.prompt.strip() == prompt.strip() for prompt in kept.prompts)
        return SavedSession(
            named,
            str(path),
            holds,
            tuple(kept.calls.values()),
            frozenset(kept.settled),
            tuple(kept.prompts),
        )

    def _transcript(self, session_id: str) -> Path | None:
        return transcript_of(session_id, self._place.environment)


class _Ear(ParsedProgramOutput[ClaudeOutput]):
    """Hears one process of Claude Code."""

    def __init__(self, before: CostState, *, schema: bool) -> None:
        super().__init__(ClaudeOutput(), judge, schema=schema)
        self._before = before

    @property
    def counted(self) -> None:
        """Nothing: not all versions keep count, and those that do count only what ended well."""
        return None

    def spent(self) -> ProcessCost:
        """What this process cost: newer clients tell it for the whole session."""
        result = self._printed.result
        if result is None or not result.usage:
            return ProcessCost()
        before = self._before
        usage = [
            (model, _since(told, before.usage.get(model, TokenUsage())))
            for model, told in result.usage
        ]
        cost = result.cost
        if cost is not None and cost >= before.cost:
            cost -= before.cost
        return ProcessCost(tuple(usage), cost)


def _since(told: TokenUsage, before: TokenUsage) -> TokenUsage:
    return told if told.total < before.total else beyond(told, before)
