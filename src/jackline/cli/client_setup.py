"""`jackline connect`, `disconnect` and `plugin`: set up a client for the gateway, and undo it.

Rules: (1) every change is shown, and with --dry-run only shown; (2) every verb may be run twice;
(3) `disconnect` needs no gateway and works with a faulty configuration; (4) the plugin is installed
by Claude Code's own `plugin` command; (5) clients call this very Jackline: by its short name where
the PATH leads to it, else by the full path of the interpreter, on Windows always by a full path.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from jackline import programs
from jackline.agents.claude_code.environment import BASE_URL, CLIENT_VARIABLES, client_environment
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find
from jackline.cli.gateway_flags import configured, service_place, warn_of_faults
from jackline.cli.system_steps import Run, Write, apply_steps
from jackline.clients import claude_code, codex
from jackline.clients.claude_code import ClaudeSettings, ConnectionRecords
from jackline.clients.plugin import (
    ABOUT,
    FOLDER,
    MARKETPLACE,
    PLUGIN_ID,
    HttpHook,
    build,
    is_exact,
    marketplace_files,
    remove,
)
from jackline.clients.settings_change import SettingsChange, read_settings
from jackline.config import Config, ServicePlace
from jackline.errors import BadArgumentError, NothingFoundError, UsageError
from jackline.hooks.hook_input import HEADER, PATH, hook_token
from jackline.local_address import local_url
from jackline.providers.settings import UpstreamKind

_NO_RESPONSES = (
    "no upstream of this gateway has the API that Codex calls, so its calls will be refused; next:"
    " jackline upstream add openai --preset openai --credential pass-through"
)
_WAITING = {each.name: each.value for each in CLIENT_VARIABLES}
_CLIENT_SECONDS = 60

_CLIENTS = ("claude-code", "codex")
_client = click.argument("client", type=click.Choice(_CLIENTS))
_project = click.option(
    "--project", is_flag=True, help="Only in this folder (.claude/settings.local.json)."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_plugin_project = click.option(
    "--project", is_flag=True, help="Only for this project (its .claude/settings.json)."
)
_plugin_dry_run = click.option(
    "--dry-run", is_flag=True, help="Show the steps and the files in full, change nothing."
)


@click.command()
@_client
@_project
@_dry_run
@_as_json
def connect(client: str, project: bool, dry_run: bool, as_json: bool) -> int:
    """Point a client at the gateway in its own settings file.

    Its editor extension and its desktop version then use the gateway, too, without variables in any
    shell. All other settings in the file stay; a backup is saved next to it.

    \b
    Examples:
      jackline connect claude-code              for you, everywhere
      jackline connect claude-code --project    only in this folder
      jackline connect codex --dry-run          only show the change
    """
    config = configured({}, with_secrets=False)
    listen = config.gateway.listen
    if listen.token is not None:
        raise BadArgumentError(
            "this gateway requires a token, which must not be in a client's settings",
            hint="connect by variables instead: jackline env --help",
        )
    folder = StateDir(config.state_dir)
    running = find(folder, listen)
    if running is None and listen.port == 0:
        raise BadArgumentError(
            "the gateway takes another port at each start, so no settings can name it",
            hint="set listen.port in jackline.toml",
        )
    url = local_url(listen.host, listen.port) if running is None else running.url
    path = _settings_path(client, project=project)
    before = read_settings(path)
    if client == "codex":
        env_key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None
        change = SettingsChange(path, before, codex.connected(before, path, url, env_key=env_key))
        kinds = {each.kind for each in config.gateway.upstreams}
        warning = "" if UpstreamKind.OPENAI_RESPONSES in kinds else _NO_RESPONSES
    else:
        settings = ClaudeSettings(path, before)
        environ = {**os.environ, **settings.variables}
        words = [*_jackline_command(), "statusline"]
        line = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
        variables = client_environment(url, afk=False, environ=environ)
        after, written = settings.connected(variables, line)
        change = SettingsChange(path, before, after)
        records = ConnectionRecords(folder.folder)
        warning = records.ignored(path)
        if not dry_run:
            # The record first: after an interruption between the two, all of it can be undone.
            folder.make()
            if not records.of(path):
                # Values of ours without a record are not what the user had before.
                records.save(path, settings.unrecorded(BASE_URL, _WAITING))
            records.save(path, written)
    backup = None if dry_run else change.apply()
    message = f"{client} uses {url} from its next start on"
    _report(change, message, backup, [], warning, dry_run=dry_run, as_json=as_json)
    if running is None and not dry_run:
        click.echo("no gateway runs yet: jackline up -d (at every login: up --install)", err=True)
    return 0


@click.command()
@click.argument("client", type=click.Choice(_CLIENTS), required=False)
@_project
@_dry_run
@_as_json
def disconnect(client: str | None, project: bool, dry_run: bool, as_json: bool) -> int:
    """Restore a client's own settings, so that it calls its vendor directly again.

    Without CLIENT: those of every client that is connected, here and for you.

    \b
    Examples:
      jackline disconnect
      jackline disconnect codex --dry-run
    """
    place = service_place({})
    warn_of_faults(place)
    if client is not None or project:
        _disconnect(place, client or "claude-code", project, dry_run=dry_run, as_json=as_json)
        return 0
    found = _connected(place)
    for name, in_project in found:
        _disconnect(place, name, in_project, dry_run=dry_run, as_json=as_json)
    if not found:
        click.echo("no client is connected", err=True)
    return 0


def _connected(place: ServicePlace) -> list[tuple[str, bool]]:
    """The clients whose settings have values of ours, and whether only in this folder."""
    found = []
    for name, in_project in (("claude-code", False), ("claude-code", True), ("codex", False)):
        try:
            path = _settings_path(name, project=in_project)
        except UsageError as error:
            # A project's link leads elsewhere: nothing of ours was written there.
            click.echo(f"warning: {error.message}", err=True)
            continue
        before = read_settings(path)
        if name == "codex":
            after = codex.disconnected(before, path)
        else:
            settings = ClaudeSettings(path, before)
            written = ConnectionRecords(place.state_dir).of(path)
            after, _ = settings.disconnected(written or settings.unrecorded(BASE_URL, _WAITING))
        if SettingsChange(path, before, after).changes_anything:
            found.append((name, in_project))
    return found


def _disconnect(
    place: ServicePlace, client: str, project: bool, *, dry_run: bool, as_json: bool
) -> None:
    path = _settings_path(client, project=project)
    before = read_settings(path)
    changed: list[str] = []
    warning = ""
    if client == "codex":
        change = SettingsChange(path, before, codex.disconnected(before, path))
    else:
        records = ConnectionRecords(place.state_dir)
        settings = ClaudeSettings(path, before)
        written = records.of(path) or settings.unrecorded(BASE_URL, _WAITING)
        after, changed = settings.disconnected(written)
        warning = records.ignored(path)
        address = ClaudeSettings(path, after).variables.get(BASE_URL)
        if address:
            warning += (
                f"{'; ' if warning else ''}{BASE_URL} is still {address} in it, and"
                f" {place.state_dir} has no record of that; if you do not want it, remove the line"
            )
        change = SettingsChange(path, before, after)
        if not dry_run:
            records.forget(path)
    # A file that held nothing but our values is no copy of an earlier state.
    backup = None if dry_run else change.apply(backup=change.after is not None)
    effect = "has its own settings back" if warning else "calls its vendor directly"
    message = f"{client} {effect} from its next start on"
    _report(change, message, backup, changed, warning, dry_run=dry_run, as_json=as_json)


def _report(
    change: SettingsChange,
    message: str,
    backup: Path | None,
    left_alone: Sequence[str],
    warning: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        document = {
            "schema": "jackline.connect/1",
            "file": str(change.path),
            "changed": change.changes_anything and not dry_run,
            "would_change": change.changes_anything,
            "backup": None if backup is None else str(backup),
            "left_alone": list(left_alone),
            "warning": warning or None,
        }
        click.echo(json.dumps(document, indent=2))
        return
    if change.changes_anything:
        click.echo(change.diff())
    for key in left_alone:
        click.echo(f"left alone, because it was changed since: {key}", err=True)
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
    elif change.changes_anything:
        click.echo(message, err=True)
        if backup is not None:
            click.echo(f"the file as it was before: {backup}", err=True)
    else:
        click.echo(f"{change.path} is up to date", err=True)
    if warning:
        click.echo(f"warning: {warning}", err=True)


def _settings_path(client: str, *, project: bool) -> Path:
    if client == "codex":
        if project:
            raise BadArgumentError("Codex has no settings for a project", hint="omit --project")
        return codex.settings_file(os.environ)
    if not project:
        return claude_code.settings_file(os.environ)
    path = claude_code.settings_file(os.environ, Path.cwd())
    plain = Path.cwd().resolve() / path.relative_to(Path.cwd())
    target = Path(os.path.realpath(path))
    # A repository's link would let it choose which of the user's files is changed.
    if path.is_symlink() or os.path.normcase(target) != os.path.normcase(plain):
        raise UsageError(
            f"{path} leads to {target} by a link, which is not followed in a project",
            hint="remove the link, then run it again; or omit --project",
        )
    return path


def _jackline_command() -> list[str]:
    """The command by which clients call this very Jackline."""
    found = programs.find_program("jackline")
    if found is None or Path(found).resolve().parent != Path(sys.executable).parent:
        return programs.own_command()
    return [found] if os.name == "nt" else ["jackline"]


class PluginFolder:
    """The plugin's files and nothing else, in the private state folder of a configuration."""

    def __init__(self, config: Config) -> None:
        self._listen = config.gateway.listen
        self._state = StateDir(config.state_dir)
        self.path = self._state.folder / "claude-code"

    def files(self) -> dict[str, str]:
        """What the folder has to hold; hooks use HTTP only where port and token are fixed."""
        hook = None
        if self._listen.port != 0 and self._listen.token is None:
            has_salt = self._state.folder.is_dir()
            token = hook_token(self._state.salt()) if has_salt else "(made when it is installed)"
            url = local_url(self._listen.host, self._listen.port)
            hook = HttpHook(f"{url}{PATH}", HEADER, token)
        return marketplace_files(_jackline_command(), hook)

    def make_state(self) -> None:
        """Create the state folder, and with it the salt of the token."""
        try:
            self._state.make()
        except OSError as error:
            raise UsageError(
                f"{self._state.folder} cannot be created: {error.strerror}",
                hint="name another folder with JACKLINE_STATE",
            ) from error

    def build(self) -> Path:
        """Write the files where they differ; returns what `claude --plugin-dir` can load."""
        self.make_state()
        try:
            build(self.path, self.files())
        except OSError as error:
            raise UsageError(
                f"the plugin cannot be written to {self.path}: {error.strerror}",
                hint="name another folder with JACKLINE_STATE",
            ) from error
        return self.path / FOLDER


@click.group()
def plugin() -> None:
    """Set up the plugin for Claude Code: the agent tool with resume, hooks, slash commands."""


@plugin.command()
@_plugin_project
@_plugin_dry_run
@click.option("--verbose", is_flag=True, help="Show the files in full.")
def install(project: bool, dry_run: bool, verbose: bool) -> int:
    """Install the plugin for you, or for this project."""
    folder = PluginFolder(configured({}, with_secrets=False))
    claude = _ClaudeProgram()
    if not dry_run:
        folder.make_state()
    files = folder.files()
    changed = not is_exact(folder.path, files)
    show = partial(_show_step, in_full=dry_run or verbose)
    if changed:
        apply_steps(
            [Write(folder.path / path, text.encode()) for path, text in files.items()],
            show,
            dry_run=True,
        )
        if not dry_run:
            folder.build()
    if MARKETPLACE not in claude.listed("marketplace", "list"):
        steps = [claude.step("marketplace", "add", str(folder.path))]
    else:
        steps = [claude.step("marketplace", "update", MARKETPLACE, may_fail=True)]
    scope = ("--scope", "project" if project else "user")
    is_there = PLUGIN_ID in claude.listed("list")
    if is_there and changed:
        # Some versions of the client use a copy of their own, which only this renews.
        steps.append(claude.step("uninstall", PLUGIN_ID, *scope, may_fail=True))
    if changed or not is_there:
        steps.append(claude.step("install", PLUGIN_ID, *scope))
    apply_steps(steps, show, dry_run=dry_run)
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
    else:
        click.echo(
            "the plugin is there from the client's next start on: /jackline:status", err=True
        )
    return 0


@plugin.command()
@_plugin_project
@_plugin_dry_run
def uninstall(project: bool, dry_run: bool) -> int:
    """Remove the plugin."""
    folder = PluginFolder(configured({}, with_secrets=False))
    claude = _ClaudeProgram()
    scope = ("--scope", "project" if project else "user")
    steps = [
        claude.step("uninstall", PLUGIN_ID, *scope, may_fail=True),
        claude.step("marketplace", "remove", MARKETPLACE, may_fail=True),
    ]
    apply_steps(steps, partial(_show_step, in_full=dry_run), dry_run=dry_run)
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
    else:
        with contextlib.suppress(OSError):
            remove(folder.path)
        click.echo("the plugin is gone from the client's next start on", err=True)
    return 0


@plugin.command()
@_as_json
def status(as_json: bool) -> int:
    """Show whether the plugin is installed, and whether it calls this Jackline.

    Exit codes: 0 it is, 1 it is not.
    """
    folder = PluginFolder(configured({}, with_secrets=False))
    installed = PLUGIN_ID in _ClaudeProgram().listed("list")
    current = is_exact(folder.path, folder.files())
    if as_json:
        document = {"schema": "jackline.plugin/1", "installed": installed, "current": current}
        click.echo(json.dumps(document))
    elif not installed:
        click.echo("the plugin is not installed; next: jackline plugin install")
    elif not current:
        click.echo("the plugin is of another Jackline; next: jackline plugin install")
    else:
        click.echo("the plugin is installed, and calls this Jackline")
    return 0 if installed and current else 1


def _show_step(step: str, *, in_full: bool) -> None:
    """Print a step; unless in full, only its first line, and for a file its purpose."""
    first, _, content = step.partition("\n")
    if in_full or not content:
        click.echo(step, err=True)
        return
    written = Path(first.removeprefix("write ")).as_posix()
    about = next((text for path, text in ABOUT.items() if written.endswith(f"/{path}")), "")
    click.echo(f"{first} ({about})" if about else first, err=True)


class _ClaudeProgram:
    """Claude Code's own `plugin` command; NothingFoundError where it is not on the PATH."""

    def __init__(self) -> None:
        found = programs.find_program("claude")
        if found is None:
            raise NothingFoundError(
                "there is no Claude Code on the PATH",
                hint="npm install -g @anthropic-ai/claude-code; or load the plugin with"
                " `claude --plugin-dir`, as `jackline claude` does",
            )
        self._command = (found, "plugin")

    def step(self, *words: str, may_fail: bool = False) -> Run:
        """The step that runs it with these words."""
        return Run((*self._command, *words), may_fail=may_fail)

    def listed(self, *words: str) -> str:
        """What it lists, as text: its form differs between versions, names do not."""
        command = [*self._command, *words]
        try:
            done = subprocess.run(  # noqa: S603 -- the client on the PATH
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CLIENT_SECONDS,
                check=False,
                env=os.environ,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(
                f"{command[0]} does not answer: {type(error).__name__}",
                hint=f"see its output: {' '.join(command)}",
            ) from error
        return done.stdout.decode("utf-8", "replace")
