"""The runner `claude-code`: start the real Claude Code behind the gateway.

Rules: (1) neither prompts nor secrets are in the command line: they go through standard input and
through files that are deleted afterwards; a schema is, as Claude Code takes it in no other way; (2)
all calls go to the gateway, whatever address, cloud or headers the user's own settings name: their
`env` replaces what a process is started with, so all that a run relies on is in `--settings`, too,
which replaces that; the user's own headers stay beside ours; (3) tools are offered by name, and no
others: those that are named, else the usual ones, so that what a later version of the client brings
is not in it; (4) the model is always named, or a resumed session would lose its context options;
(5) only the user's own settings are followed, never those of a folder, and git starts nothing that
a look at the folder could start; (6) a prompt is text: its words come from models, answers and file
names, and neither attach a file nor run a command; (7) notes (`CLAUDE.md`) are handed on as text,
like `AGENTS.md` by Codex: those from the folder up to the top of its repository, within bounds, and
none through a link out of it; (8) of the folder's settings only rules that deny or ask are handed
on, which nobody can misuse; (9) a bare name in `--allowedTools` allows every use of that tool,
wherever the file is, so no file tool is ever passed so: reading in the folder needs no permission,
and edits are allowed as `Edit(./**)`, which the client limits to its folder, links and its own
settings included; (10) a rule with brackets was written by the user, and is passed as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from uuid import UUID, uuid5

from jackline.agents.claude_code.environment import (
    CUSTOM_HEADERS,
    TOKEN_HEADER,
    client_environment,
)
from jackline.agents.claude_code.printed_output import ClaudeOutput, reask_prompt
from jackline.agents.claude_code.tool_rules import USUAL_TOOLS, allowed_rules, offered_names
from jackline.agents.process.child import folders_of_project, start_files
from jackline.agents.process.program import SavedSession, StartCommand, StartRequest
from jackline.agents.process.runner import ProgramRunner
from jackline.agents.runner import AgentTask
from jackline.agents.structured_answer import StructuredAnswer
from jackline.foreign_files import PROJECT_BYTES, object_in, read_foreign
from jackline.foreign_repositories.guard import git_settings_for_clients
from jackline.outside_names import printable
from jackline.task_proof import HEADER as TASK_HEADER
from jackline.task_proof import named_task
from jackline.transcripts.saved_conversation import read_claude_session
from jackline.transcripts.sources import ClientFolders

# Waits and retries are the gateway's; this many of the client's own bridge its restart.
_RETRIES = "CLAUDE_CODE_MAX_RETRIES", "4"
# Else 2.1.197 asks git for the state of the folder, which runs filters that the repository names.
_NO_GIT_STATE = "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS", "1"
# Else `@path` in a prompt attaches any file of the user, whatever tools and folders are allowed.
_NO_ATTACHMENTS = "CLAUDE_CODE_DISABLE_ATTACHMENTS", "1"
# Tools that are to be searched for are listed in an attachment.
_NO_TOOL_SEARCH = "ENABLE_TOOL_SEARCH", "false"
# Before a prompt that could be a command: `/config` writes the user's own settings.
_TEXT_FOLLOWS = "The task:\n\n"
# What agents remember, others are asked to follow; and their schedules outlive them.
_NO_MEMORY = "CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"
_NO_SCHEDULES = "CLAUDE_CODE_DISABLE_CRON", "1"
_SWITCHES = (_NO_GIT_STATE, _NO_ATTACHMENTS, _NO_TOOL_SEARCH, _NO_MEMORY, _NO_SCHEDULES)
# With these, calls would not go to the address that they are given.
_ELSEWHERE = (
    *("ANTHROPIC_UNIX_SOCKET", "CLAUDE_CODE_USE_ANTHROPIC_AWS"),
    *("CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD", "CLAUDE_CODE_USE_BEDROCK"),
    *("CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_GATEWAY"),
    *("CLAUDE_CODE_USE_MANTLE", "CLAUDE_CODE_USE_VERTEX"),
)
_CLASS_HEADER = "x-jackline-class"
# They need no permission. The first three reach other sessions of the user, now or later. Worktrees
# are made by the client's own git, which runs hooks of the repository, and by 2.1.197 wherever a
# link in the clone leads; a sub-agent in a cloud works with other rights.
_NOT_OFFERED = (
    *("CronCreate", "ListAgents", "SendMessage"),
    *("EnterWorktree", "ExitWorktree", "Agent(isolation:*)"),
)
# Definitions of sub-agents and workflows ask for worktrees, too: with this hook, none can be made.
_NO_WORKTREES = {"WorktreeCreate": [{"hooks": [{"type": "command", "command": "exit 1"}]}]}
# Nor do edits of some files in there: memories, and what other programs start.
_NOT_EDITED = ("~/.claude/**", "**/.claude/**")
# By these a Claude Code would take itself for a part of the one that it was started from.
_OF_A_PARENT = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    # With it, the tasks of an agent are put into a list that other sessions get.
    "CLAUDE_CODE_TASK_LIST_ID",
)
_UNSET = (*_OF_A_PARENT, *_ELSEWHERE)
# With these neither settings, hooks, servers, agents, skills nor CLAUDE.md of a folder are read.
# `claude -p` runs the hooks of `.claude/settings.json`, starts the servers of every `.mcp.json` up
# to the root of the file system, lets the project's `env` replace the gateway's address, and reads
# all of it again whenever it changes. Agents write files: what one wrote, another must not obey.
_OWN_SETTINGS = ("--setting-sources", "user")
_SETTINGS = (".claude", ".mcp.json")
_NOTES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
_MOST_NOTES = 100_000
_RULES = ("settings.json", "settings.local.json")
_MOST_RULES = 200
_LONGEST_RULE = 200


class ClaudeCodeRunner(ProgramRunner):
    """Runs agents with Claude Code."""

    name = "claude-code"
    usual_program = "claude"

    def reask_prompt(self, fault: str | None) -> str:
        """See `ProgramRunner`."""
        return reask_prompt(fault)

    def as_text(self, prompt: str) -> str:
        """See `ProgramRunner`."""
        return prompt if prompt[:1].isalnum() else _TEXT_FOLLOWS + prompt

    def why_not(self, task: AgentTask) -> str | None:
        """See `ProgramRunner`."""
        if task.tools:
            return (
                "Claude Code brings its own tools and cannot call Python functions: name its tools "
                'as strings ("Read", "Bash(git *)"), give an MCP server, or use runner="messages"'
            )
        return None

    def unfollowed_notice(self, cwd: Path) -> str:
        """See `ProgramRunner`."""
        environment = self._setup.environment
        named = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
        try:
            folder = cwd.resolve()
            home = Path(named or Path.home()).resolve()
            own = {ClientFolders.of_process(environment).claude.resolve(), home / ".claude"}
            found = [
                each / name
                for each in (folder, *folder.parents)
                for name in _SETTINGS
                if each != home
                and os.path.lexists(each / name)
                and (each / name).resolve() not in own
            ]
        except (OSError, RuntimeError, ValueError):
            return ""
        if not found:
            return ""
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return (
            f"Claude Code follows only your own settings in {printable(str(folder))}, not"
            f" {printable(str(found[0]))}{more}: agents that work there may write them. What agents"
            " need of it belongs into your own settings of Claude Code, or into `tools` and"
            " `mcp_servers` of the agent."
        )

    @contextmanager
    def start(self, task: AgentTask, request: StartRequest) -> Iterator[StartCommand]:
        """See `ProgramRunner`."""
        with start_files() as folder:
            own = folder / "tmp"
            own.mkdir()
            variables = self._variables(task)
            # In the system's temporary folder, another user can have taken its place.
            variables["CLAUDE_CODE_TMPDIR"] = str(own)
            command = [
                *(self._setup.program, "-p", "--output-format", "stream-json", "--verbose"),
                *self._session_options(task, request),
                *_OWN_SETTINGS,
                *self._tool_options(task),
                *self._file_options(task, folder, variables),
            ]
            if task.schema is not None:
                command += ["--json-schema", json.dumps(StructuredAnswer(task.schema).input_schema)]
            environ = {**dict([_RETRIES]), **self._setup.environment, **variables}
            kept = {name: text for name, text in environ.items() if text or name not in _UNSET}
            yield StartCommand(command, kept)

    def _session_options(self, task: AgentTask, request: StartRequest) -> list[str]:
        new_session = task.session_id
        if request.session_id is not None:
            options = ["--resume", request.session_id]
        else:
            if self._transcript(new_session) is not None:
                # Cut off before anything was in it: it can neither be resumed nor begun again.
                new_session = str(uuid5(UUID(new_session), "again"))
            options = ["--session-id", new_session]
        if request.model is not None:
            options += ["--model", request.model]
        if request.turns_left is not None:
            options += ["--max-turns", str(request.turns_left)]
        if request.dollars_left is not None:
            options += ["--max-budget-usd", f"{request.dollars_left:.6f}"]
        return options

    def _tool_options(self, task: AgentTask) -> list[str]:
        """Which tools it has, and may use without asking: there is nobody to ask."""
        names = USUAL_TOOLS if task.tool_names is None else task.tool_names
        # Whoever configured these servers wants them to be used.
        named = [*names, *(f"mcp__{server}" for server in task.mcp_servers)]
        rules = allowed_rules(named, edits=task.accepts_edits or task.tool_names is not None)
        allowed = ["--allowedTools", ",".join(rules)] if rules else []
        offered = ",".join(offered_names(named))
        return ["--permission-mode", "dontAsk", "--tools", offered, *allowed]

    def _file_options(
        self, task: AgentTask, folder: Path, variables: Mapping[str, str]
    ) -> list[str]:
        options = []
        text = "\n\n".join(part for part in (task.system, notes_of(task.cwd)) if part)
        if text:
            system = folder / "system.txt"
            system.write_text(text, encoding="utf-8")
            options += ["--append-system-prompt-file", str(system)]
        rules = denying_rules(task.cwd)
        own = ClientFolders.of_process(self._setup.environment).claude.absolute()
        edits = [f"Edit({each})" for each in (*_NOT_EDITED, f"/{own.as_posix()}/**")]
        rules["deny"] = [*_NOT_OFFERED, *edits, *rules.get("deny", ())]
        settings = folder / "settings.json"
        document = {
            "env": variables,
            "permissions": rules,
            "hooks": _NO_WORKTREES,
            "crossSessionInbound": "refuse",
        }
        settings.write_text(json.dumps(document), encoding="utf-8")
        options += ["--settings", str(settings)]
        if task.mcp_servers:
            servers = folder / "mcp.json"
            servers.write_text(json.dumps({"mcpServers": dict(task.mcp_servers)}), encoding="utf-8")
            options += ["--mcp-config", str(servers), "--strict-mcp-config"]
        return options

    def _variables(self, task: AgentTask) -> dict[str, str]:
        """What must not come from the user's environment or settings; an empty one unsets it."""
        # As the client has them: those in its settings replace those it is started with.
        theirs = dict(self._setup.environment) | self._variables_in_settings()
        ours = dict(named_task(task.task_id))
        if task.class_ is not None:
            ours[_CLASS_HEADER] = task.class_
        # We may ourselves be run by an agent of a flow, and inherit the name of its task.
        replaced = {*ours, TASK_HEADER} | ({TOKEN_HEADER} if self._setup.token else set())
        lines = [
            line
            for line in theirs.get(CUSTOM_HEADERS, "").splitlines()
            if line.strip() and line.partition(":")[0].strip().lower() not in replaced
        ]
        theirs[CUSTOM_HEADERS] = "\n".join(lines)
        chosen = client_environment(
            self._setup.base_url, afk=False, environ=theirs, token=self._setup.token
        )
        known = chosen.get(CUSTOM_HEADERS, theirs[CUSTOM_HEADERS]).splitlines()
        lines = [*known, *(f"{name}: {value}" for name, value in ours.items())]
        return {
            **dict.fromkeys(_UNSET, ""),
            **chosen,
            **dict(_SWITCHES),
            CUSTOM_HEADERS: "\n".join(lines),
            **git_settings_for_clients(theirs),
        }

    def _variables_in_settings(self) -> dict[str, str]:
        folder = ClientFolders.of_process(self._setup.environment).claude
        found = object_in(folder / "settings.json").get("env")
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in (found.items() if isinstance(found, dict) else ())
        }

    def output(self, task: AgentTask, session_id: str | None) -> ClaudeOutput:
        """See `ProgramRunner`."""
        path = None if session_id is None else self._transcript(session_id)
        before = None if path is None else read_claude_session(path)
        return ClaudeOutput(schema=task.schema is not None, before=before)

    def saved_session(self, task: AgentTask, session_id: str | None) -> SavedSession:
        """See `ProgramRunner`."""
        named = session_id or task.session_id
        path = self._transcript(named)
        if path is None:
            return SavedSession()
        saved = read_claude_session(path)
        if not saved.prompts and not saved.answers:
            return SavedSession(transcript=str(path))
        # One that an earlier version has begun holds it as it is.
        known = {task.prompt.strip(), self.as_text(task.prompt).strip()}
        holds = any(prompt.strip() in known for prompt in saved.prompts)
        return SavedSession(named, str(path), holds, saved)

    def _transcript(self, session_id: str) -> Path | None:
        return ClientFolders.of_process(self._setup.environment).claude_transcript(session_id)


def notes_of(cwd: Path) -> str:
    """The notes of the project for whoever works there; empty without any."""
    folders = folders_of_project(cwd)
    parts = []
    left = _MOST_NOTES
    for each in reversed(folders):
        for name in _NOTES:
            try:
                file = (each / name).resolve()
                text = read_foreign(file, left) if file.is_relative_to(folders[-1]) else b""
            except (OSError, RuntimeError, ValueError):
                continue
            left -= len(text)
            if text.strip():
                where = printable(str(each / name))
                parts.append(f"Notes of the project, {where}:\n\n{text.decode('utf-8', 'replace')}")
    return "\n\n".join(parts)


def denying_rules(cwd: Path) -> dict[str, list[str]]:
    """By kind, the rules of the folder's own settings that only take permissions away."""
    kinds: dict[str, list[str]] = {}
    for name in _RULES:
        permissions = object_in(cwd / ".claude" / name, PROJECT_BYTES).get("permissions")
        for kind in ("deny", "ask"):
            rules = permissions.get(kind) if isinstance(permissions, dict) else None
            usable = (
                rule
                for rule in (rules if isinstance(rules, list) else ())
                if isinstance(rule, str) and len(rule) <= _LONGEST_RULE and rule.isprintable()
            )
            kinds.setdefault(kind, []).extend(islice(usable, _MOST_RULES))
    return {kind: rules[:_MOST_RULES] for kind, rules in kinds.items() if rules}
