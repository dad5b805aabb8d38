"""Settings of what models may do: which tools, in which folders, and how long they wait.

Rules: (1) a model cannot give an agent more than the user allows, here or in the client's own
settings; (2) Claude Code is offered only tools that are usual or that the user named: of any other
it runs by itself what it takes for harmless, such as commands that read through links; (3) a call
works in the client's folder, below it, or in a configured folder; links are followed before the
check; an agent's own folder is one that a model chose: it works there, but trusts nothing in it;
(4) a call is answered before its client's patience ends; (5) only light imports, because config/
loads this module.
Not here: files and flags (config/), single calls of a batch (batches/permission.py).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from jackline.agents.claude_code import tool_rules
from jackline.agents.claude_code.tool_rules import FILE_TOOLS
from jackline.agents.claude_code.tool_rules import base_of as base_tool
from jackline.agents.outcome import RUNNERS
from jackline.batches.policy import CLIENT_SETTINGS
from jackline.errors import BadArgumentError, RefusedError
from jackline.foreign_repositories import ForeignRepositoryError, ask_git
from jackline.foreign_repositories.git_folders import (
    MisplacedRepositoryError,
    is_git_layout,
    nested_repositories,
)
from jackline.foreign_repositories.guard import kind_of
from jackline.mcp_server.agent_definitions import AgentDefinition
from jackline.outside_names import LONGEST_PATH, cut_name, is_long_path, printable
from jackline.settings import Form, InProject, setting

# What needs no word of the user: Claude Code's tools for the folder, and those of our own loop.
USUAL_TOOLS = (*tool_rules.USUAL_TOOLS, "read", "search")


Sight: TypeAlias = Callable[[str | None], bool]
"""Whether a client may learn what was done in this folder."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Agents that models start through the tools of `jackline mcp`."""

    runner: str = setting("claude-code", "What runs agents that name no runner.", choices=RUNNERS)
    model: str | None = setting(
        None,
        "The model of agents that name none; not set: the runner's default.",
        Form.MODEL,
        in_project=InProject.PRICED,
    )
    runners: tuple[str, ...] = setting(
        (),
        "Which other runners a model may choose. Each has its own sandbox, permissions and costs,"
        " so by default a model has `agents.runner` alone.",
        choices=RUNNERS,
    )
    tools: tuple[str, ...] = setting(
        (),
        "Tools that they have, beside reading and editing in their folder and sub-agents, by"
        ' Claude Code\'s names: "Bash(pytest *)", "WebFetch". They use them without permission, and'
        " are offered no others. Once Bash is named in any form, Claude Code also runs commands"
        " that it takes for harmless, which read through links. A file tool's bare name"
        ' ("Read") is limited to the folder; "Read(//srv/data/**)" is not. "write" and "edit" are'
        " those of the runner messages; git folders and the settings of clients are closed to"
        " them.",
    )
    folders: tuple[Path, ...] = setting(
        (),
        "Where agents and batches may work, beside the folder of their client, and whose runs"
        " models see. No folder's settings (`.claude`, `.mcp.json`, `.codex`) are followed, and an"
        " agent's program is started in no folder inside of it that brings such settings, hooks, or"
        " a repository with others in it.",
        Form.ABSOLUTE_PATH,
    )
    depth: int = setting(
        3,
        "How many agents deep: an agent that a model started may start agents, and these may again."
        " With 1 they may start none.",
        least=1,
        most=20,
    )
    # Codex and most SDKs give a call 60 s.
    wait: float = setting(
        50.0,
        "A call is answered after this at the latest, with an id if its agent works on.",
        Form.DURATION,
        least=1,
        most=86400,
    )
    # Claude Code gives a call 28 h, and 30 min without a sign of life.
    long_wait: float = setting(
        1500.0,
        "The same for Claude Code, which waits longer while it gets progress reports.",
        Form.DURATION,
        least=1,
        most=86400,
    )

    def check_runner(self, runner: str) -> None:
        """RefusedError unless the user named it: each has permissions and costs of its own."""
        if runner not in (self.runner, *self.runners):
            raise RefusedError(
                f"The user has not allowed models the runner {runner}.",
                hint=f"Leave `runner` out: agents are carried by {self.runner}. The user may allow"
                f' it in their own jackline.toml: agents.runners = ["{runner}"]',
            )

    def working_folder(self, named: str | None, client: Path | None) -> Path:
        """Where a call works, absolute and resolved; BadArgumentError when it must not, or cannot.

        It looks at the disk: to be called in a thread.
        `named` is what the call names, `client` the folder of its client.
        """
        if named is None and client is None:
            raise BadArgumentError(
                "This client did not say in which folder it works.",
                hint="Give `cwd`, a folder below one of agents.folders in the user's own"
                " jackline.toml; or connect through `jackline mcp`, which sends its own.",
            )
        path = (client or Path("/")) / (named or ".")
        if named is not None and client is None and not Path(named).is_absolute():
            raise BadArgumentError(f"cwd must be absolute here, not {cut_name(named)!r}.")
        folder = None
        if is_long_path(str(path)):
            raise BadArgumentError(f"A path has at most {LONGEST_PATH:,} bytes.", hint="Check cwd.")
        with suppress(OSError, RuntimeError, ValueError):  # circles of links, no names for files
            folder = path.resolve()
        # Path's own test raises for a name that is too long.
        if folder is None or not os.path.isdir(folder):  # noqa: PTH112
            raise BadArgumentError(f"There is no folder {named or path}.", hint="Check cwd.")
        if self.base_of(folder, client) is None:
            raise BadArgumentError(
                f"{folder} lies outside the project folder.",
                hint="The user may allow it in their own jackline.toml:"
                f' agents.folders = ["{folder}"]',
            )
        return folder

    def chosen_folders(self, project: Path | None) -> tuple[Path, ...]:
        """The folders that the user chose: `project` (AgentManager.project_of) and these."""
        return tuple(each for each in (project, *self.folders) if each is not None)

    def base_of(self, folder: Path, project: Path | None) -> Path | None:
        """The nearest at or above it of `project` and the configured folders; None without one."""
        allowed = [each.resolve() for each in self.chosen_folders(project)]
        above = [each for each in allowed if folder.is_relative_to(each)]
        return max(above, key=lambda each: len(each.parts), default=None)

    def sight_of(self, client: Path | None) -> Sight:
        """Which folders this client may learn of; one that is gone is judged by its name."""

        def sees(folder: str | None) -> bool:
            if not folder or is_long_path(folder) or not Path(folder).is_absolute():
                return False
            try:
                return self.base_of(Path(folder).resolve(), client) is not None
            except (OSError, RuntimeError, ValueError):
                return False

        return sees


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What models may run without permission, through the tool `batch` and as release commands."""

    allow: tuple[str, ...] = setting(
        (),
        'Commands such as "pytest *" or "git log *", run without a shell, and addresses such as'
        ' "fetch:https://docs.python.org/*". Reading and searching in the project are always'
        " allowed. docs/configuration.md explains the patterns.",
    )


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What models may do."""

    agents: AgentSettings = field(default_factory=AgentSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)


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
        allowed = (*USUAL_TOOLS, *settings.tools)
        if refused := [name for name in names or () if name not in allowed]:
            shown = ", ".join(map(cut_name, refused[:5]))
            raise BadArgumentError(
                f"The runner messages may not use {shown} for a model.",
                hint=f"The user may allow it in their own jackline.toml: {_setting(refused)}",
            )
        return Offered(None if names is None else list(names))
    bracketed = [name for name in names or () if "(" in name and name not in settings.tools]
    if bracketed:
        raise BadArgumentError(
            f"{cut_name(bracketed[0])}: only the user can say which uses of a tool need no"
            " permission.",
            hint="Give the tool's name alone. The user may allow this in their own jackline.toml:"
            f" {_setting(bracketed)}",
        )
    tools = _theirs(names, runner, settings)
    if names and not tools:
        raise BadArgumentError(
            f"None of the tools named can be offered: {', '.join(map(cut_name, names[:5]))}.",
            hint="Name usual ones, or leave `tools` out. The user may allow others, such as a"
            f" server's, in their own jackline.toml: {_setting(names)}",
        )
    return Offered(tools, _left_out("The call", names or (), tools))


def offered_to(definition: AgentDefinition, runner: str, settings: AgentSettings) -> Offered:
    """The tools that a definition names, as far as the user allows them."""
    names = definition.tools
    if runner == "messages" or names is None:
        return offered(names, runner, settings)
    # Of a tool that keeps to the folder the name is enough. Of any other one the definition meant
    # some uses, which cannot be trusted to be harmless: it is not given all of them instead.
    plain = [
        base if name not in settings.tools and base in FILE_TOOLS else name
        for name, base in zip(names, map(base_tool, names), strict=True)
    ]
    tools = _theirs(plain, runner, settings)
    who = f"The agent definition {cut_name(definition.name)}"
    none_left = (f"{who} names no other tools: the agent has none.",) if names and not tools else ()
    return Offered(tools, (*_left_out(who, names, tools), *none_left))


def _left_out(who: str, names: Sequence[str], tools: Sequence[str] | None) -> tuple[str, ...]:
    """What to say of names that the user would have to allow."""
    given = {each for tool in tools or () for each in (tool, base_tool(tool))}
    left = [name for name in names if tools is not None and name not in given]
    if not left:
        return ()
    note = (
        f"{who} names {', '.join(map(cut_name, left[:5]))}, of which only the user can say that"
        " agents may use it so: the agent has at most the tool's usual uses. The user may allow it"
        f" in their own jackline.toml: {_setting(left)}"
    )
    return (note,)


def _setting(names: Sequence[str]) -> str:
    return f'agents.tools = ["{cut_name(names[0])}"]'


def _theirs(names: Sequence[str] | None, runner: str, settings: AgentSettings) -> list[str] | None:
    if runner == "codex":
        # It brings its own tools in its own sandbox, which depends on whether one changes things.
        return None if names is None else [base_tool(name) for name in names]
    if names is None and not settings.tools:
        return None
    allowed = (*USUAL_TOOLS, *settings.tools)
    # Those of the runner `messages` begin with a small letter.
    theirs = [name for name in allowed if name[:1].isupper() or name.startswith("mcp__")]
    wanted = theirs if names is None else names
    return list(dict.fromkeys(rule for name in wanted for rule in _rules(name, theirs)))


def _rules(name: str, allowed: Sequence[str]) -> list[str]:
    if name in allowed:
        return [name]
    if name.startswith("mcp__") and _ONE_NAME.fullmatch(name):
        return [name] if "__".join(name.split("__")[:2]) in allowed else []
    return [each for each in allowed if base_tool(each) == name]


# Git fetches by itself what such a repository lacks, from wherever it says.
_FETCHES = ("extensions.partialclone", "remote.*.promisor", "remote.*.partialclonefilter")
_OF_A_REPOSITORY = ("local", "worktree")


async def check_nested(folder: Path, trusted: Path | None) -> None:
    """RefusedError if an agent's program must not be started there; `folder` has no links left.

    `trusted` is the folder at or above it that the user chose; None where there is none.
    """
    if trusted is None:
        why: str | None = "a model chose it, and no folder above it is the user's choice"
    else:
        why, has_repository = await asyncio.to_thread(_look, folder, trusted)
        if why is None and has_repository:
            try:
                why = await _why_not_git(folder, trusted)
            except ForeignRepositoryError as error:
                why = error.why
    if why is not None:
        shown = printable(str(folder))
        raise RefusedError(
            f"No agent is started in {shown}: {why}.",
            hint="Start it in the project's own folder, and say in its prompt where to work. The"
            f' user may trust that folder in their own jackline.toml: agents.folders = ["{shown}"]',
        )


def _look(folder: Path, trusted: Path) -> tuple[str | None, bool]:
    """Why not there, by names alone; and whether a repository other than the trusted one's is."""
    repository = False
    try:
        if folder.resolve() != folder or not folder.is_relative_to(trusted):
            return "it leads elsewhere by now", False
        between = [each for each in (folder, *folder.parents) if each.is_relative_to(trusted)]
        for each in between[:-1]:
            # Some file systems ignore case.
            names = {name.lower() for name in os.listdir(each)}  # noqa: PTH208 -- names alone
            where = printable(str(each.relative_to(trusted)))
            if brought := next((name for name in CLIENT_SETTINGS if name in names), None):
                return f"{where} brings {brought}, which the program would follow", False
            # What git takes for a repository without a work tree, which no `.git` gives away.
            if is_git_layout(names):
                return f"{where} is laid out as a git folder, whose settings git follows", False
            repository = repository or ".git" in names
    except (OSError, RuntimeError, ValueError):
        return "it cannot be looked at", False
    return None, repository


async def _why_not_git(folder: Path, trusted: Path) -> str | None:
    """The clients ask git for the folder's state, and nothing keeps that git from starting things.

    ForeignRepositoryError names settings that no git of ours would follow either.
    """
    code, said = await ask_git(folder, "config", "--list", "--includes", "--show-scope", "-z")
    parts = os.fsdecode(said).split("\0")
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = entry.partition("\n")
        if scope in _OF_A_REPOSITORY and kind_of(name, value) in ("guarded", "hooks"):
            return f"its repository sets {printable(name)}, which may start a program"
        if scope in _OF_A_REPOSITORY and any(fnmatchcase(name.lower(), each) for each in _FETCHES):
            return f"its repository sets {printable(name)}, by which git fetches unasked"
    failed, said = await ask_git(folder, "rev-parse", "--show-toplevel", "--git-common-dir")
    lines = os.fsdecode(said).split("\n")
    if code or failed or len(lines) != 3:
        return "git cannot say how its repository is set up"
    return await asyncio.to_thread(_why_not_on_disk, Path(lines[0]), folder / lines[1], trusted)


def _why_not_on_disk(top: Path, common: Path, trusted: Path) -> str | None:
    hook: str | None = None
    try:
        names = sorted(os.listdir(common / "hooks"))  # noqa: PTH208 -- names alone
        hook = next((name for name in names if not name.endswith(".sample")), None)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        hook = "whose folder cannot be listed"
    if hook is not None:
        return f"its repository has a hook, {printable(hook)}, which git would start"
    # Those that the trusted folder's own repository keeps are the user's own, as its settings are.
    own = common.resolve() == (trusted / ".git").resolve()
    if not own and os.path.lexists(common / "modules"):
        return "its repository keeps others, whose settings git would follow"
    try:
        inside = nested_repositories(top)
    except MisplacedRepositoryError as error:
        return str(error)
    if inside:
        where = printable(str(inside[0].relative_to(top)))
        return f"its repository holds another one, {where}, whose settings git would follow"
    return None
