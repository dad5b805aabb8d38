"""`jackline plugin`: set up the Claude Code plugin, take it away, say how it stands.

Laws: (1) the client's own `plugin` command does the installing: its files are not ours to guess;
every step is shown before it is done, in full where asked; (2) all verbs may be run twice; (3) the
plugin calls this very Jackline, wherever it is installed.
Not here: the plugin's files (clients/plugin_files.py), settings of the client (connect.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import click

from jackline.assembly import StateDir, local_url
from jackline.cli.gateway_flags import configured
from jackline.cli.own_command import own_words
from jackline.cli.system_steps import Run, Step, Write, carry_out
from jackline.clients.plugin_files import (
    ABOUT,
    FOLDER,
    MARKETPLACE,
    PLUGIN,
    HttpHook,
    marketplace_files,
)
from jackline.clients.plugin_folder import build, is_exact, remove
from jackline.config import Config
from jackline.errors import NothingFoundError, UsageError
from jackline.hooks.http_token import HEADER, PATH, hook_token
from jackline.programs import find_program

_SECONDS = 60
_scope = click.option(
    "--project", is_flag=True, help="Only for this project (its .claude/settings.json)."
)
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Show the steps and the files in full, change nothing."
)
_verbose = click.option("--verbose", is_flag=True, help="Show the files in full.")


@click.group()
def plugin() -> None:
    """Set up the plugin for Claude Code: the agent tool with resume, hooks, slash commands."""


@plugin.command()
@_scope
@_dry_run
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
        carry_out(writes, _teller(in_full=dry_run or verbose), dry_run=True)
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
    return marketplace_files(own_words(), _http_hook(config))


def _http_hook(config: Config) -> HttpHook | None:
    """How hooks reach the service over HTTP; None where its port, or its token, is not fixed."""
    listen, state = config.gateway.listen, StateDir(config.state_dir)
    if listen.port == 0 or listen.token is not None:
        return None
    token = hook_token(state.salt()) if state.folder.is_dir() else "(made when it is installed)"
    return HttpHook(f"{local_url(listen.host, listen.port)}{PATH}", HEADER, token)


def _carry_out(steps: list[Step], *, dry_run: bool, in_full: bool) -> None:
    carry_out(steps, _teller(in_full=in_full), dry_run=dry_run)
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
