"""`jackline connect` and `disconnect`: set up a client for the gateway, and undo it.

Rules: (1) every change is shown, and with --dry-run only shown; (2) every verb may be run twice;
(3) `disconnect` needs no gateway and works with a faulty configuration; (4) where nothing else was
changed since, a file is afterwards what it was before, byte for byte; (5) the plugin is installed,
too, if its user says so: a person is asked, a script names --plugin or --no-plugin.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from jackline import programs
from jackline.agents.claude_code.environment import BASE_URL, CLIENT_VARIABLES, client_environment
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find
from jackline.cli.gateway_flags import configured, service_place, warn_of_faults
from jackline.cli.plugin_setup import install_plugin, jackline_command
from jackline.clients import claude_code, codex
from jackline.clients.claude_code import ClaudeSettings, ConnectionRecords
from jackline.clients.plugin import PLUGIN_ID
from jackline.clients.settings_change import SettingsChange, as_it_was, read_settings
from jackline.errors import BadArgumentError, UsageError
from jackline.local_address import local_url
from jackline.providers.settings import UpstreamKind

_NO_RESPONSES = (
    "no upstream of this gateway has the API that Codex calls, so its calls will be refused; next:"
    " jackline upstream add openai --preset openai --credential pass-through"
)
_WAITING = {each.name: each.value for each in CLIENT_VARIABLES}

_client = click.argument("client", type=click.Choice(["claude-code", "codex"]))
_project = click.option(
    "--project", is_flag=True, help="Only in this folder (.claude/settings.local.json)."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.command()
@_client
@_project
@_dry_run
@click.option(
    "--plugin/--no-plugin",
    default=None,
    help="Install the plugin for Claude Code, too; without either you are asked.",
)
@_as_json
def connect(client: str, project: bool, dry_run: bool, plugin: bool | None, as_json: bool) -> int:
    """Point a client at the gateway in its own settings file.

    Its editor extension and its desktop version then use the gateway, too, without variables in any
    shell. All other settings in the file stay; a backup is saved next to it. For Claude Code the
    plugin (sub-agents that can be resumed, hooks, slash commands) is installed, too, if you agree.
    `jackline uninstall` undoes all of it.

    \b
    Examples:
      jackline connect claude-code              for you, everywhere
      jackline connect claude-code --project    only in this folder
      jackline connect codex --dry-run          only show the change
    """
    if plugin and client != "claude-code":
        raise BadArgumentError(f"there is no plugin for {client}", hint="omit --plugin")
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
        words = [*jackline_command(), "statusline"]
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
    if client == "claude-code" and _wants_plugin(plugin, dry_run=dry_run, as_json=as_json):
        install_plugin(project=project, dry_run=dry_run, in_full=False)
    if running is None and not dry_run:
        click.echo("no gateway runs yet: jackline up -d (at every login: up --install)", err=True)
    return 0


@click.command()
@_client
@_project
@_dry_run
@_as_json
def disconnect(client: str, project: bool, dry_run: bool, as_json: bool) -> int:
    """Restore a client's own settings, so that it calls its vendor directly again."""
    place = service_place({})
    warn_of_faults(place)
    found = disconnection(client, _settings_path(client, project=project), place.state_dir)
    change, warning = found.change, found.warning
    if not dry_run:
        found.forget()
    # A file that held nothing but our values is no copy of an earlier state.
    backup = None if dry_run else change.apply(backup=change.after is not None)
    effect = "has its own settings back" if warning else "calls its vendor directly"
    message = f"{client} {effect} from its next start on"
    _report(change, message, backup, found.left_alone, warning, dry_run=dry_run, as_json=as_json)
    return 0


@dataclass(frozen=True, slots=True)
class Disconnection:
    """How one settings file gets its own values back.

    `left_alone` are keys that somebody has changed since.
    """

    client: str
    change: SettingsChange
    left_alone: list[str]
    warning: str
    records: ConnectionRecords | None = None

    def forget(self) -> None:
        """Delete the record of what was written."""
        if self.records is not None:
            self.records.forget(self.change.path)


def disconnection(client: str, path: Path, state: Path) -> Disconnection:
    """What `disconnect` does with this file of a client; `state` is the folder of the records."""
    before = read_settings(path)
    if client == "codex":
        after = codex.disconnected(before, path)
        if after != before:
            after = as_it_was(path, after, codex.same_settings)
        return Disconnection(client, SettingsChange(path, before, after), [], "")
    records = ConnectionRecords(state)
    settings = ClaudeSettings(path, before)
    written = records.of(path) or settings.unrecorded(BASE_URL, _WAITING)
    after, left_alone = settings.disconnected(written)
    warning = records.ignored(path)
    address = ClaudeSettings(path, after).variables.get(BASE_URL)
    if address:
        warning += (
            f"{'; ' if warning else ''}{BASE_URL} is still {address} in it, and"
            f" {state} has no record of that; if you do not want it, remove the line"
        )
    if after != before:
        after = as_it_was(path, after, claude_code.same_settings)
    return Disconnection(client, SettingsChange(path, before, after), left_alone, warning, records)


def _wants_plugin(named: bool | None, *, dry_run: bool, as_json: bool) -> bool:
    """Whether the plugin is to be installed: as the flag says, or as a person answers."""
    if named is not None:
        return named
    installed = PLUGIN_ID in (read_settings(claude_code.settings_file(os.environ)) or "")
    if installed or programs.find_program("claude") is None:
        return False
    if dry_run or as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo("next:  jackline plugin install (sub-agents that can be resumed)", err=True)
        return False
    question = "Install the plugin for Claude Code, too (sub-agents that can be resumed, hooks)?"
    return click.confirm(question, default=True, err=True)


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
