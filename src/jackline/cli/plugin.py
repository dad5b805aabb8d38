"""`jackline plugin`: set up the Claude Code plugin, take it away, say how it stands.

Laws: (1) the client's own `plugin` command does the installing: its files are not ours to guess;
every step is shown before it is done; (2) all verbs may be run twice; (3) the plugin calls this
very Jackline, wherever it is installed.
Not here: the plugin's files (clients/plugin_files.py), settings of the client (connect.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import click

from jackline.assembly import StateDir
from jackline.cli.gateway_flags import configured
from jackline.cli.own_command import own_words
from jackline.cli.system_steps import Run, Step, Write, carry_out
from jackline.clients.plugin_files import FOLDER, MARKETPLACE, PLUGIN, marketplace_files
from jackline.config import Config
from jackline.errors import NothingFoundError, UsageError

_SECONDS = 60
_scope = click.option(
    "--project", is_flag=True, help="Only for this project (its .claude/settings.json)."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the steps, change nothing.")


@click.group()
def plugin() -> None:
    """Set up the plugin for Claude Code: the agent tool with resume, hooks, slash commands."""


@plugin.command()
@_scope
@_dry_run
def install(project: bool, dry_run: bool) -> int:
    """Install the plugin for you, or for this project."""
    config = configured({}, with_secrets=False)
    folder = market_folder(config)
    claude = _claude()
    steps: list[Step] = [*_files(folder)]
    known = _listed(claude, "marketplace", "list")
    if MARKETPLACE not in known:
        steps.append(Run((claude, "plugin", "marketplace", "add", str(folder))))
    else:
        steps.append(Run((claude, "plugin", "marketplace", "update", MARKETPLACE), may_fail=True))
    scope = "project" if project else "user"
    if f"{PLUGIN}@{MARKETPLACE}" not in _listed(claude, "list"):
        name = f"{PLUGIN}@{MARKETPLACE}"
        steps.append(Run((claude, "plugin", "install", name, "--scope", scope)))
    if not dry_run:
        _make_folder(config)
    _carry_out(steps, dry_run=dry_run)
    if not dry_run:
        click.echo(
            "the plugin is there from the client's next start on: /jackline:status", err=True
        )
    return 0


@plugin.command()
@_scope
@_dry_run
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
    _carry_out(steps, dry_run=dry_run)
    if not dry_run:
        shutil.rmtree(market_folder(config), ignore_errors=True)
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
    folder = market_folder(config)
    current = all(
        (folder / path).is_file() and (folder / path).read_text("utf-8") == text
        for path, text in marketplace_files(own_words()).items()
    )
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
    folder = market_folder(config)
    _make_folder(config)
    try:
        for step in _files(folder):
            step.path.parent.mkdir(parents=True, exist_ok=True)
            step.path.write_bytes(step.content)
    except OSError as error:
        raise UsageError(
            f"the plugin cannot be written to {folder}: {error.strerror}",
            next="name another folder with JACKLINE_STATE",
        ) from error
    return folder / FOLDER


def _make_folder(config: Config) -> None:
    """The state folder, closed to others: made here first, it would be open to all."""
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


def _files(folder: Path) -> list[Write]:
    found = []
    for path, text in marketplace_files(own_words()).items():
        file = folder / path
        if not file.is_file() or file.read_bytes() != text.encode():
            found.append(Write(file, text.encode()))
    return found


def _carry_out(steps: list[Step], *, dry_run: bool) -> None:
    carry_out(steps, lambda words: click.echo(words, err=True), dry_run=dry_run)


def _claude() -> str:
    found = shutil.which("claude")
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
