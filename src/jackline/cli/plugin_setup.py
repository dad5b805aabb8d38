"""`jackline plugin`: the plugin for Claude Code, installed by the client's own `plugin` command.

Rules: (1) every step is shown, and with --dry-run only shown; (2) the client calls this very
Jackline: by its short name where the PATH leads to it, else by the full path of the interpreter, on
Windows always by a full path.
The files of the plugin: clients/plugin.py. `connect` offers to install it: client_setup.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import click

from jackline import programs
from jackline.assembly import StateDir
from jackline.cli.gateway_flags import configured
from jackline.cli.system_steps import Run, Write, apply_steps
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
from jackline.config import Config
from jackline.errors import NothingFoundError, UsageError
from jackline.hooks.hook_input import HEADER, PATH, hook_token
from jackline.local_address import local_url

FOLDER_NAME = "claude-code"
"""The folder of the plugin inside of the state folder."""
_CLIENT_SECONDS = 60
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_project = click.option(
    "--project", is_flag=True, help="Only for this project (its .claude/settings.json)."
)
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Show the steps and the files in full, change nothing."
)


def jackline_command() -> list[str]:
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
        self.path = self._state.folder / FOLDER_NAME

    def files(self) -> dict[str, str]:
        """What the folder has to hold; hooks use HTTP only where port and token are fixed."""
        hook = None
        if self._listen.port != 0 and self._listen.token is None:
            has_salt = self._state.folder.is_dir()
            token = hook_token(self._state.salt()) if has_salt else "(made when it is installed)"
            url = local_url(self._listen.host, self._listen.port)
            hook = HttpHook(f"{url}{PATH}", HEADER, token)
        return marketplace_files(jackline_command(), hook)

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
@_project
@_dry_run
@click.option("--verbose", is_flag=True, help="Show the files in full.")
def install(project: bool, dry_run: bool, verbose: bool) -> int:
    """Install the plugin for you, or for this project."""
    install_plugin(project=project, dry_run=dry_run, in_full=dry_run or verbose)
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
    return 0


def install_plugin(*, project: bool, dry_run: bool, in_full: bool) -> None:
    """Write the plugin's files, and have Claude Code install them; each step is shown."""
    folder = PluginFolder(configured({}, with_secrets=False))
    claude = ClaudeProgram()
    if not dry_run:
        folder.make_state()
    files = folder.files()
    changed = not is_exact(folder.path, files)
    show = partial(_show_step, in_full=in_full)
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
    is_there = claude.has_plugin()
    if is_there and changed:
        # Some versions of the client use a copy of their own, which only this renews.
        steps.append(claude.step("uninstall", PLUGIN_ID, *scope, may_fail=True))
    if changed or not is_there:
        steps.append(claude.step("install", PLUGIN_ID, *scope))
    apply_steps(steps, show, dry_run=dry_run)
    if not dry_run:
        click.echo(
            "the plugin is there from the client's next start on: /jackline:status", err=True
        )


@plugin.command()
@_project
@_dry_run
def uninstall(project: bool, dry_run: bool) -> int:
    """Remove the plugin."""
    folder = PluginFolder(configured({}, with_secrets=False))
    steps = plugin_removal(ClaudeProgram(), project=project)
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
    installed = ClaudeProgram().has_plugin()
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


def plugin_removal(claude: ClaudeProgram, *, project: bool) -> list[Run]:
    """The steps by which Claude Code gives the plugin up."""
    scope = ("--scope", "project" if project else "user")
    return [
        claude.step("uninstall", PLUGIN_ID, *scope, may_fail=True),
        claude.step("marketplace", "remove", MARKETPLACE, may_fail=True),
    ]


def _show_step(step: str, *, in_full: bool) -> None:
    """Print a step; unless in full, only its first line, and for a file its purpose."""
    first, _, content = step.partition("\n")
    if in_full or not content:
        click.echo(step, err=True)
        return
    written = Path(first.removeprefix("write ")).as_posix()
    about = next((text for path, text in ABOUT.items() if written.endswith(f"/{path}")), "")
    click.echo(f"{first} ({about})" if about else first, err=True)


class ClaudeProgram:
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

    def has_plugin(self) -> bool:
        """Whether the client lists the plugin."""
        return PLUGIN_ID in self.listed("list")

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
