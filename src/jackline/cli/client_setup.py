"""`jackline connect`, `disconnect` and `plugin`: set up a client for the gateway, and undo it.

Rules: (1) every change is shown, and with --dry-run only shown; (2) every verb may be run twice;
(3) `disconnect` needs no gateway and works with a faulty configuration; (4) the plugin is installed
by Claude Code's own `plugin` command; (5) clients call this very Jackline: by its short name where
the PATH leads to it, else by the full path of the interpreter, on Windows always by a full path.
Not here: what is written (clients/), starting a client (client_run.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from jackline import programs
from jackline.agents.claude_code.environment import BASE_URL, CLIENT_VARIABLES, client_environment
from jackline.assembly import StateDir, local_url
from jackline.assembly.gateway_process import find
from jackline.cli.gateway_flags import configured, service_place, warn_of_faults
from jackline.cli.system_steps import Run, Step, Write, apply_steps
from jackline.clients import claude_code, codex
from jackline.clients.claude_code import ConnectionRecords
from jackline.clients.plugin import (
    ABOUT,
    FOLDER,
    MARKETPLACE,
    PLUGIN,
    HttpHook,
    build,
    is_exact,
    marketplace_files,
    remove,
)
from jackline.clients.settings_change import SettingsChange, text_of
from jackline.config import Config
from jackline.errors import BadArgumentError, NothingFoundError, UsageError
from jackline.hooks.hook_input import HEADER, PATH, hook_token
from jackline.programs import find_program
from jackline.providers.settings import UpstreamKind


def own_command(*arguments: str) -> str:
    """A command line for a shell of this system."""
    words = [*own_command_words(), *arguments]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def own_command_words() -> list[str]:
    """The words of that command, one by one."""
    found = programs.find_program("jackline")
    if found is None or Path(found).resolve().parent != Path(sys.executable).parent:
        return programs.own_command()
    return [found] if os.name == "nt" else ["jackline"]


_NO_RESPONSES = (
    "no upstream of this gateway speaks what Codex speaks, so its calls will be refused; next:"
    " jackline upstream add openai --preset openai --credential pass-through"
)
_CLIENTS = click.Choice(["claude-code", "codex"])
_client = click.argument("client", type=_CLIENTS)
_project = click.option(
    "--project", is_flag=True, help="Only in this folder (.claude/settings.local.json)."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of one settings file."""

    change: SettingsChange
    backup: Path | None
    kept: list[str]
    dry_run: bool
    warning: str = ""

    def tell(self, words: str, *, as_json: bool) -> None:
        """Say it."""
        if as_json:
            told = {
                "schema": "jackline.connect/1",
                "file": str(self.change.path),
                "changed": self.change.is_one and not self.dry_run,
                "would_change": self.change.is_one,
                "backup": None if self.backup is None else str(self.backup),
                "left_alone": self.kept,
                "warning": self.warning or None,
            }
            click.echo(json.dumps(told, indent=2))
            return
        if self.change.is_one:
            click.echo(self.change.shown())
        for key in self.kept:
            click.echo(f"left alone, because it was changed since: {key}", err=True)
        if self.dry_run:
            click.echo("nothing was changed: --dry-run", err=True)
        elif self.change.is_one:
            click.echo(words, err=True)
            if self.backup is not None:
                click.echo(f"the file as it was before: {self.backup}", err=True)
        else:
            click.echo(f"{self.change.path} is so already", err=True)
        if self.warning:
            click.echo(f"warning: {self.warning}", err=True)


@click.command()
@_client
@_project
@_dry_run
@_as_json
def connect(client: str, project: bool, dry_run: bool, as_json: bool) -> int:
    """Let a client go through the gateway, by its own settings file.

    So that also its extension in an editor and its desktop version do, without variables in any
    shell. Everything else in the file stays; a backup is kept beside it.

    \b
    Examples:
      jackline connect claude-code              for you, everywhere
      jackline connect claude-code --project    only in this folder
      jackline connect codex --dry-run          only show it
    """
    config = configured({}, with_secrets=False)
    if config.gateway.listen.token is not None:
        raise BadArgumentError(
            "this gateway asks for a token, which must not stand in a client's settings",
            next="connect by variables instead: jackline env --help",
        )
    folder = StateDir(config.state_dir)
    running = find(folder, config.gateway.listen)
    url = _address(config) if running is None else running.url
    if client == "codex":
        done = _connect_codex(config, url, project=project, dry_run=dry_run)
    else:
        done = _connect_claude(folder, url, project=project, dry_run=dry_run)
    done.tell(f"{client} goes through {url} from its next start on", as_json=as_json)
    if running is None and not dry_run:
        click.echo("no gateway runs yet: jackline up -d (at every login: up --install)", err=True)
    return 0


@click.command()
@_client
@_project
@_dry_run
@_as_json
def disconnect(client: str, project: bool, dry_run: bool, as_json: bool) -> int:
    """Give a client its own settings back, so that it goes to its vendor directly again."""
    place = service_place({})
    warn_of_faults(place)
    if client == "codex":
        path = _codex_file(project=project)
        before = text_of(path)
        change = SettingsChange(path, before, codex.disconnected(before, path))
        kept: list[str] = []
        warning = ""
    else:
        records = ConnectionRecords(place.state_dir)
        path = _claude_file(project=project)
        before = text_of(path)
        written = records.of(path) or _unrecorded(before, path)
        after, kept = claude_code.disconnected(before, path, written)
        address = claude_code.variables_in(after, path).get(BASE_URL)
        still = f"{BASE_URL} is still {address} in it, and {place.state_dir} has no record of that"
        advice = f"{still}; if you do not want it, remove the line" if address else ""
        warning = "; ".join(filter(None, (records.ignored(path), advice)))
        change = SettingsChange(path, before, after)
        if not dry_run:
            records.forget(path)
    # A file that held nothing but ours is no copy of how it was before.
    backup = None if dry_run else change.make(backup=change.after is not None)
    done = _Done(change, backup, kept, dry_run, warning)
    where = "has its own settings back" if warning else "goes to its vendor directly"
    done.tell(f"{client} {where} from its next start on", as_json=as_json)
    return 0


def _connect_claude(folder: StateDir, url: str, *, project: bool, dry_run: bool) -> _Done:
    path = _claude_file(project=project)
    before = text_of(path)
    theirs = claude_code.variables_in(before, path)
    variables = client_environment(url, afk=False, environ={**os.environ, **theirs})
    after, written = claude_code.connected(before, path, variables, own_command("statusline"))
    change = SettingsChange(path, before, after)
    backup = None
    records = ConnectionRecords(folder.folder)
    warning = records.ignored(path)
    if not dry_run:
        # First the record: who is interrupted between the two can still take back all of it.
        folder.make()
        if not records.of(path):
            # Values of ours that nobody recorded are not what the user had before.
            records.keep(path, _unrecorded(before, path))
        records.keep(path, written)
        backup = change.make()
    return _Done(change, backup, [], dry_run, warning)


def _unrecorded(text: str | None, path: Path) -> claude_code.Written:
    waiting = {each.name: each.value for each in CLIENT_VARIABLES}
    return claude_code.unrecorded(text, path, BASE_URL, waiting)


def _connect_codex(config: Config, url: str, *, project: bool, dry_run: bool) -> _Done:
    path = _codex_file(project=project)
    before = text_of(path)
    env_key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None
    change = SettingsChange(path, before, codex.connected(before, path, url, env_key=env_key))
    backup = None if dry_run else change.make()
    kinds = {each.kind for each in config.gateway.upstreams}
    warning = "" if UpstreamKind.OPENAI_RESPONSES in kinds else _NO_RESPONSES
    return _Done(change, backup, [], dry_run, warning)


def _claude_file(*, project: bool) -> Path:
    here = Path.cwd() if project else None
    path = claude_code.settings_file(os.environ, claude_code.user_home(), here)
    if here is not None:
        _refuse_links(here, path)
    return path


def _refuse_links(project: Path, path: Path) -> None:
    """A repository's link would let it choose which of the user's files is changed."""
    plain = project.resolve() / path.relative_to(project)
    target = Path(os.path.realpath(path))
    if path.is_symlink() or os.path.normcase(target) != os.path.normcase(plain):
        raise UsageError(
            f"{path} leads to {target} by a link, which is not followed in a project",
            next="remove the link, then run it again; or leave --project away",
        )


def _codex_file(*, project: bool) -> Path:
    if project:
        raise BadArgumentError("Codex has no settings for a project", next="leave --project away")
    return codex.settings_file(os.environ, claude_code.user_home())


def _address(config: Config) -> str:
    listen = config.gateway.listen
    if listen.port == 0:
        raise BadArgumentError(
            "the gateway takes another port at each start, so no settings can name it",
            next="set listen.port in jackline.toml",
        )
    return local_url(listen.host, listen.port)


_SECONDS = 60
_scope = click.option(
    "--project", is_flag=True, help="Only for this project (its .claude/settings.json)."
)
_plugin_dry_run = click.option(
    "--dry-run", is_flag=True, help="Show the steps and the files in full, change nothing."
)
_verbose = click.option("--verbose", is_flag=True, help="Show the files in full.")


@click.group()
def plugin() -> None:
    """Set up the plugin for Claude Code: the agent tool with resume, hooks, slash commands."""


@plugin.command()
@_scope
@_plugin_dry_run
@_verbose
def install(project: bool, dry_run: bool, verbose: bool) -> int:
    """Install the plugin for you, or for this project."""
    config = configured({}, with_secrets=False)
    folder = market_folder(config)
    claude = _claude()
    if not dry_run:
        _make_state(config)
    files = _files(config)
    changed = not is_exact(folder, files)
    if changed:
        writes: list[Step] = [Write(folder / path, text.encode()) for path, text in files.items()]
        apply_steps(writes, _teller(in_full=dry_run or verbose), dry_run=True)
        if not dry_run:
            _build(config)
    steps: list[Step] = []
    if MARKETPLACE not in _listed(claude, "marketplace", "list"):
        steps.append(Run((claude, "plugin", "marketplace", "add", str(folder))))
    else:
        steps.append(Run((claude, "plugin", "marketplace", "update", MARKETPLACE), may_fail=True))
    scope = "project" if project else "user"
    name = f"{PLUGIN}@{MARKETPLACE}"
    is_there = name in _listed(claude, "list")
    if is_there and changed:
        # Some versions work with a copy of their own, which only this renews.
        steps.append(Run((claude, "plugin", "uninstall", name, "--scope", scope), may_fail=True))
    if changed or not is_there:
        steps.append(Run((claude, "plugin", "install", name, "--scope", scope)))
    _carry_out(steps, dry_run=dry_run, in_full=dry_run or verbose)
    if not dry_run:
        click.echo(
            "the plugin is there from the client's next start on: /jackline:status", err=True
        )
    return 0


@plugin.command()
@_scope
@_plugin_dry_run
def uninstall(project: bool, dry_run: bool) -> int:
    """Take the plugin away again."""
    config = configured({}, with_secrets=False)
    claude = _claude()
    scope = "project" if project else "user"
    name = f"{PLUGIN}@{MARKETPLACE}"
    steps: list[Step] = [
        Run((claude, "plugin", "uninstall", name, "--scope", scope), may_fail=True),
        Run((claude, "plugin", "marketplace", "remove", MARKETPLACE), may_fail=True),
    ]
    _carry_out(steps, dry_run=dry_run, in_full=dry_run)
    if not dry_run:
        with contextlib.suppress(OSError):
            remove(market_folder(config))
        click.echo("the plugin is gone from the client's next start on", err=True)
    return 0


@plugin.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(as_json: bool) -> int:
    """Say whether the plugin is installed, and whether it calls this Jackline.

    Exit codes: 0 it is, 1 it is not.
    """
    config = configured({}, with_secrets=False)
    claude = _claude()
    installed = f"{PLUGIN}@{MARKETPLACE}" in _listed(claude, "list")
    current = is_exact(market_folder(config), _files(config))
    if as_json:
        told = {"schema": "jackline.plugin/1", "installed": installed, "current": current}
        click.echo(json.dumps(told))
    elif not installed:
        click.echo("the plugin is not installed; next: jackline plugin install")
    elif not current:
        click.echo("the plugin is of another Jackline; next: jackline plugin install")
    else:
        click.echo("the plugin is installed, and calls this Jackline")
    return 0 if installed and current else 1


def plugin_folder(config: Config) -> Path:
    """A folder that `claude --plugin-dir` can load; made if it is not there or old."""
    _build(config)
    return market_folder(config) / FOLDER


def _build(config: Config) -> None:
    """The plugin's files and nothing else, in the state folder, which is closed to others."""
    folder = market_folder(config)
    _make_state(config)
    try:
        build(folder, _files(config))
    except OSError as error:
        raise UsageError(
            f"the plugin cannot be written to {folder}: {error.strerror}",
            next="name another folder with JACKLINE_STATE",
        ) from error


def _make_state(config: Config) -> None:
    try:
        StateDir(config.state_dir).make()
    except OSError as error:
        raise UsageError(
            f"{config.state_dir} cannot be made: {error.strerror}",
            next="name another folder with JACKLINE_STATE",
        ) from error


def is_installed(settings: str | None) -> bool:
    """Whether the client's settings (their text) have the plugin already."""
    return f'"{PLUGIN}@{MARKETPLACE}"' in (settings or "")


def market_folder(config: Config) -> Path:
    """Where the plugin's files of this Jackline lie."""
    return StateDir(config.state_dir).folder / "claude-code"


def _files(config: Config) -> dict[str, str]:
    return marketplace_files(own_command_words(), _http_hook(config))


def _http_hook(config: Config) -> HttpHook | None:
    """How hooks reach the service over HTTP; None where its port, or its token, is not fixed."""
    listen, state = config.gateway.listen, StateDir(config.state_dir)
    if listen.port == 0 or listen.token is not None:
        return None
    token = hook_token(state.salt()) if state.folder.is_dir() else "(made when it is installed)"
    return HttpHook(f"{local_url(listen.host, listen.port)}{PATH}", HEADER, token)


def _carry_out(steps: list[Step], *, dry_run: bool, in_full: bool) -> None:
    apply_steps(steps, _teller(in_full=in_full), dry_run=dry_run)
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)


def _teller(*, in_full: bool) -> Callable[[str], None]:
    return lambda words: click.echo(words if in_full else _in_short(words), err=True)


def _in_short(step: str) -> str:
    """The first line of a step, and for a file what it is for."""
    first, _, content = step.partition("\n")
    if not content:
        return first
    about = next((words for path, words in ABOUT.items() if _names(first, path)), "")
    return f"{first} ({about})" if about else first


def _names(step: str, path: str) -> bool:
    return Path(step.removeprefix("write ")).as_posix().endswith(f"/{path}")


def _claude() -> str:
    found = find_program("claude")
    if found is None:
        raise NothingFoundError(
            "there is no Claude Code on the PATH",
            next="npm install -g @anthropic-ai/claude-code; or load the plugin with"
            " `claude --plugin-dir`, as `jackline claude` does",
        )
    return found


def _listed(claude: str, *words: str) -> str:
    """What the client lists, as text: its form differs between versions, names do not."""
    try:
        done = subprocess.run(  # noqa: S603 -- the client on the PATH
            [claude, "plugin", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=os.environ,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{claude} does not answer: {type(error).__name__}",
            next=f"see what it says: {claude} plugin {' '.join(words)}",
        ) from error
    return done.stdout.decode("utf-8", "replace")
